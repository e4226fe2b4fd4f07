"""Two processes of this machine: latency and bandwidth of the transport between hosts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Literal

import numpy as np

from dorylax.calibration.steps import Sizes, Step, Values, other_process, rate, repeated
from dorylax.clock import RealClock
from dorylax.net.keys import RunKeys
from dorylax.pipeline.transport.base import Address
from dorylax.pipeline.transport.codec import Codec
from dorylax.pipeline.transport.zeromq import ZeroMqTransport

Kind = Literal["ipc", "tcp"]

_HERE, _THERE = Address("graph", 0), Address("graph", 1)
_CODEC = Codec([], {})


def requests(sizes: Sizes) -> Iterator[Step]:
    """List measurements of requests over files of this machine, and over its loopback interface, encrypted."""
    kinds: tuple[Kind, ...] = ("ipc", "tcp")
    for kind in kinds:
        yield Step(f"transport, {kind}", partial(_measure, sizes, kind))


def _measure(sizes: Sizes, kind: Kind) -> Values:
    rows = np.ones((sizes.sent_bytes // 64, 16), np.float32)
    with _asking(kind) as ask:

        def latency() -> float:
            begin = time.perf_counter()
            for _ in range(sizes.asked):
                ask([None])
            return (time.perf_counter() - begin) / (2 * sizes.asked)

        transfer = rate(sizes.sent_together * rows.nbytes, lambda: ask([rows] * sizes.sent_together))
        return {
            **repeated("latency", latency, sizes.seconds, transport=kind),
            **repeated("transfer", transfer, sizes.sent_seconds, transport=kind),
        }


@contextmanager
def _asking(kind: Kind) -> Iterator[Any]:
    """A function that sends payloads to another process at a time, and returns when all are answered."""
    keys = RunKeys.make()
    with other_process(_answer, keys, kind) as worker, RealClock() as clock:

        async def open_it() -> ZeroMqTransport:
            return ZeroMqTransport(keys, kind, codec=_CODEC, spawn=clock.spawn)

        with closing(clock.run(open_it())) as transport:
            transport.connect({_THERE: worker.receive()})

            async def all_of(payloads: list[Any]) -> None:
                asked = (transport.request(_HERE, _THERE, "rows", one, num_bytes=0, order=()) for one in payloads)
                await asyncio.gather(*asked)

            yield lambda payloads: clock.run(all_of(payloads))


class _Silent:
    """Answers everything with nothing."""

    async def handle(self, kind: str, payload: Any, sender: Address) -> None:
        """See `RequestHandler`."""


def _answer(pipe: Connection, keys: RunKeys, kind: Kind) -> None:
    """In the other process: serve until the pipe is closed."""

    async def serve() -> None:
        over = asyncio.Event()
        with closing(ZeroMqTransport(keys, kind, codec=_CODEC, spawn=clock.spawn)) as transport:
            transport.register(_THERE, _Silent())
            asyncio.get_running_loop().add_reader(pipe.fileno(), over.set)
            pipe.send(transport.endpoint)
            await over.wait()
            asyncio.get_running_loop().remove_reader(pipe.fileno())

    with RealClock() as clock:
        clock.run(serve())
