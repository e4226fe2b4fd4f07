"""Pools that are closed after each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dorylax.serverless.backends.local.pool import LocalWorkers

Pools = Callable[..., LocalWorkers]


@pytest.fixture
def pools(servers: Any) -> Iterator[Pools]:
    made: list[LocalWorkers] = []

    def make(workers: int = 1, **options: Any) -> LocalWorkers:
        made.append(LocalWorkers(servers.keys, workers=workers, **options))
        return made[-1]

    yield make
    for pool in made:
        pool.close()
