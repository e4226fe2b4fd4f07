"""A data server with what the small stage needs, and pools of each kind, which are closed after each test."""

from __future__ import annotations

import dataclasses
import functools
import queue
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from support.handler_events import KEY, event, expected, offers, rows_of
from support.pools import LONG, Pools
from support.rie import need_emulator

from dorylax.net.keys import RunKeys
from dorylax.net.server import DataServer, Endpoint
from dorylax.serverless.backends.emulator.pool import emulated_functions
from dorylax.serverless.backends.local.pool import local_workers
from dorylax.serverless.backends.pool import Pool
from dorylax.serverless.wire import names


@dataclasses.dataclass
class Servers:
    """A graph server's and a parameter server's endpoint of one run."""

    keys: RunKeys
    graph: Endpoint
    parameters: Endpoint

    def event(self, interval: int = 1, **changed: Any) -> bytes:
        """The event of the small stage at these endpoints; its operands are offered for interval 1."""
        key = KEY._replace(interval=interval)
        asked = event(
            run=self.keys.run, graph=self.graph.address, parameters=self.parameters.address, key=key, **changed
        )
        return asked.encode()

    def offer(self, interval: int = 1) -> queue.SimpleQueue[tuple[np.ndarray, ...]]:
        """Offers what the event of an interval reads; gives where its rows arrive."""
        key = KEY._replace(interval=interval)
        for (where, name), arrays in offers().items():
            if name in (names.free(KEY), names.rows(KEY, 0)):
                renamed = names.free(key) if name == names.free(KEY) else names.rows(key, 0)
                self.graph.offer(renamed, arrays)
            elif interval == 1:
                (self.graph if where == "graph" else self.parameters).offer(name, arrays)
        arrived: queue.SimpleQueue[tuple[np.ndarray, ...]] = queue.SimpleQueue()
        self.graph.expect(names.result_rows(key), arrived.put)
        return arrived


@pytest.fixture(scope="session")
def check_rows() -> Callable[[tuple[np.ndarray, ...]], None]:
    """Checks that arrays are the small stage's results for the graph server."""

    def check(arrays: tuple[np.ndarray, ...]) -> None:
        for got, wanted in zip(arrays, expected(*rows_of(5))[1:], strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-6)

    return check


@pytest.fixture
def servers() -> Iterator[Servers]:
    keys = RunKeys.make()
    with DataServer(keys) as data:
        yield Servers(keys, data.open("graph"), data.open("parameters"))


_MAKE: dict[str, Callable[..., Pool]] = {
    "local": local_workers,
    "emulator": functools.partial(emulated_functions, timeout=LONG),
}


@pytest.fixture(params=_MAKE)
def kind(request: pytest.FixtureRequest) -> str:
    """Which pools; those of one kind have a folder, and say it there."""
    if request.param == "emulator":
        need_emulator()
    name: str = request.param
    return name


@pytest.fixture
def make_pool(servers: Servers, kind: str) -> Pools:
    """Makes pools that nobody keeps."""
    return functools.partial(_MAKE[kind], servers.keys)


@pytest.fixture
def pools(make_pool: Pools) -> Iterator[Pools]:
    made: list[Pool] = []

    def make(workers: int = 1, **options: Any) -> Pool:
        made.append(make_pool(workers=workers, **options))
        return made[-1]

    yield make
    for pool in made:
        pool.close()
