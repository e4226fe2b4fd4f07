"""How fast a worker process fetches what it reads."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from multiprocessing.connection import Connection

import numpy as np

from dorylax.calibration.other_process import other_process
from dorylax.calibration.sizes import Sizes
from dorylax.calibration.steps import Step, Values, repeated
from dorylax.serverless.data.client import DataClient
from dorylax.serverless.data.keys import RunKeys
from dorylax.serverless.data.server import DataServer

_NAME = "rows"


def steps(sizes: Sizes) -> Iterator[Step]:
    """The measurement.

    Args:
        sizes: of what is fetched.
    """
    yield Step("fetch", partial(_fetch, sizes))


def _fetch(sizes: Sizes) -> Values:
    rows = np.ones((sizes.sent_together * sizes.sent_bytes // 64, 16), np.float32)
    keys = RunKeys.make()
    with DataServer(keys) as server:
        address = server.open("graph 0")
        server.offer(address, _NAME, [rows])
        with other_process(_get, keys, address) as pipe:

            def once() -> float:
                pipe.send(None)
                seconds: float = pipe.recv()
                return rows.nbytes / seconds

            return repeated("fetch", once, sizes.seconds, transport="ipc")


def _get(pipe: Connection, keys: RunKeys, address: str) -> None:
    """Of the process: fetches whenever it is told to, and says how long it took."""
    with DataClient(keys) as client:
        while True:
            try:
                pipe.recv()
            except EOFError:
                return
            begin = time.perf_counter()
            client.get(address, _NAME)
            pipe.send(time.perf_counter() - begin)
