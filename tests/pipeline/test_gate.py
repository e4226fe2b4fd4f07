from __future__ import annotations

import asyncio

from dorylax.pipeline.messages import Started
from dorylax.pipeline.staleness import Allowance, Gate


def allowance(horizon: int) -> Allowance:
    return Allowance(horizon, oldest_rows=0, staleness=1, fills_ghosts=None, synchronous_from=None)


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def enters(gate: Gate, interval: int, epoch: int, entered: list[tuple[int, int]]) -> None:
    await gate.enter(interval, epoch)
    entered.append((interval, epoch))


def spawn(gate: Gate, entered: list[tuple[int, int]], *pairs: tuple[int, int]) -> list[asyncio.Task[None]]:
    return [asyncio.create_task(enters(gate, *pair, entered)) for pair in pairs]


def test_those_that_wait_are_let_in_by_number_and_reported_before_they_wake() -> None:
    """Between the two nothing may be decided as if they still stood."""

    async def scenario() -> None:
        reported: list[Started] = []
        gate, entered = Gate(allowance(0), reported.append), list[tuple[int, int]]()
        tasks = spawn(gate, entered, (2, 1), (0, 1), (1, 1))
        await turns()
        gate.allow(allowance(0))  # a repeat
        await turns()
        assert entered == reported == []
        for horizon in (1, 2):
            gate.allow(allowance(horizon))
            assert reported == [(0, 1), (1, 1), (2, 1)]
        await asyncio.gather(*tasks)
        assert entered == reported

    asyncio.run(scenario())


def test_who_gave_up_waiting_is_not_started() -> None:
    async def scenario() -> None:
        reported: list[Started] = []
        gate = Gate(allowance(0), reported.append)
        (task,) = spawn(gate, [], (0, 1))
        await turns()
        task.cancel()
        gate.allow(allowance(1))  # before it has woken
        await asyncio.gather(task, return_exceptions=True)
        assert not gate._waiting
        gate.allow(allowance(2))
        assert not reported

    asyncio.run(scenario())
