"""Messages of given sizes between processes, by the transport of hosts, with nothing computed."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from dorylax.clock import RealClock
from dorylax.pipeline.pending import Pending
from dorylax.pipeline.transport.base import Address
from dorylax.pipeline.transport.codec import Codec
from dorylax.pipeline.transport.zeromq import ZeroMqTransport
from dorylax.serverless.data.keys import RunKeys


class HandOver:
    """Processes that send each other the same messages again and again.

    Args:
        count: how many processes.
        messages: from whom, to whom, bytes.
    """

    def __init__(self, count: int, messages: Sequence[tuple[int, int, int]]) -> None:
        context, keys = multiprocessing.get_context("spawn"), RunKeys.make()
        self._pipes: list[Connection] = []
        self._processes = []
        for number in range(count):
            mine, theirs = context.Pipe()
            sends = [(peer, size) for sender, peer, size in messages if sender == number]
            process = context.Process(target=_life, args=(theirs, keys, number, sends), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(mine)
            self._processes.append(process)
        endpoints = [pipe.recv() for pipe in self._pipes]
        for pipe in self._pipes:
            pipe.send(endpoints)
        self.turn()  # connects

    def turn(self) -> float:
        """Seconds until all messages were acknowledged."""
        begin = time.perf_counter()
        for pipe in self._pipes:
            pipe.send(True)
        for pipe in self._pipes:
            pipe.recv()
        return time.perf_counter() - begin

    def close(self) -> None:
        """Ends the processes."""
        for pipe in self._pipes:
            pipe.send(False)
        for process in self._processes:
            process.join()


class _Taker:
    async def handle(self, kind: str, payload: Any, sender: Address) -> None:
        """See `RequestHandler`."""


def _life(pipe: Connection, keys: RunKeys, number: int, sends: Sequence[tuple[int, int]]) -> None:
    with RealClock() as clock, contextlib.ExitStack() as stack:
        home = Address("graph", number)

        async def life() -> None:
            transport = ZeroMqTransport(keys, "ipc", codec=Codec([], {}), spawn=clock.spawn)
            stack.callback(transport.close)
            transport.register(home, _Taker())
            pipe.send(transport.endpoint)
            endpoints = await asyncio.to_thread(pipe.recv)
            transport.connect({Address("graph", peer): endpoint for peer, endpoint in enumerate(endpoints)})
            contents = [(Address("graph", peer), np.ones(size, np.uint8)) for peer, size in sends]
            while await asyncio.to_thread(pipe.recv):
                pending = Pending()
                for peer, rows in contents:
                    pending.begin()
                    transport.post(
                        *(home, peer, "rows", rows),
                        num_bytes=rows.nbytes,
                        order=(),
                        waiting="receiver",
                        then=lambda *_, pending=pending: pending.end(),
                    )
                await pending.nothing()
                pipe.send(True)

        clock.run(life())
        stack.close()
