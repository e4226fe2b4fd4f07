"""This machine with another memory, and configurations of small runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dorylax.config import schema
from dorylax.machine import Limit
from dorylax.memory import hosts


@pytest.fixture
def memory_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Gives this machine another memory, in GiB."""

    def set_limit(size: float) -> None:
        for module in (schema, hosts):
            monkeypatch.setattr(module, "memory_limit", lambda: Limit(round(size * 2**30), "machine"))

    return set_limit
