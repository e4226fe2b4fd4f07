from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from dorylax.pipeline.gate import Gate
from dorylax.pipeline.staleness import Ledger


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def enters(gate: Gate, interval: int, epoch: int, entered: list[tuple[int, int]]) -> None:
    await gate.enter(interval, epoch)
    entered.append((interval, epoch))


def spawn(gate: Gate, entered: list[tuple[int, int]], *pairs: tuple[int, int]) -> list[asyncio.Task[None]]:
    return [asyncio.create_task(enters(gate, *pair, entered)) for pair in pairs]


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def test_who_may_start_does_not_wait() -> None:
    async def scenario() -> None:
        gate = Gate(Ledger(2, 1, first_synchronous=False))
        await gate.enter(1, 0)
        await gate.enter(1, 1)
        assert [gate.ledger.next_of(k) for k in range(2)] == [0, 2]

    run(scenario())


def test_those_that_wait_are_let_in_by_number_when_the_slowest_has_finished() -> None:
    async def scenario() -> None:
        gate, entered = Gate(Ledger(3, 0)), list[tuple[int, int]]()
        for interval in range(3):
            await gate.enter(interval, 0)
        tasks = spawn(gate, entered, (2, 1), (0, 1), (1, 1))
        await turns()
        for interval in (1, 0):
            gate.finished(interval, 0)
            gate.finished(interval, 0)  # a repeat
            await turns()
            assert not entered
        gate.finished(2, 0)
        await asyncio.gather(*tasks)
        assert entered == [(0, 1), (1, 1), (2, 1)]
        assert gate.ledger.newest_started == 1

    run(scenario())


def test_it_is_started_when_let_in_and_not_when_it_wakes() -> None:
    """Between the two nothing may be decided as if it still stood."""

    async def scenario() -> None:
        gate = Gate(Ledger(2, 0))
        await gate.enter(0, 0)
        await gate.enter(1, 0)
        tasks = spawn(gate, [], (0, 1), (1, 1))
        await turns()
        gate.finished(0, 0)
        gate.finished(1, 0)
        assert gate.ledger.standing is None
        assert gate.ledger.close() == 2
        await asyncio.gather(*tasks)

    run(scenario())


def test_a_release_lets_in_after_changed() -> None:
    async def scenario() -> None:
        gate, entered = Gate(Ledger(1, 0)), list[tuple[int, int]]()
        gate.ledger.barrier(0, hold=True)
        tasks = spawn(gate, entered, (0, 0))
        await turns()
        assert not entered
        gate.ledger.release(0)
        gate.changed()
        await asyncio.gather(*tasks)
        assert entered == [(0, 0)]

    run(scenario())


def test_who_gave_up_waiting_is_not_started() -> None:
    async def scenario() -> None:
        gate = Gate(Ledger(1, 0))
        await gate.enter(0, 0)
        (task,) = spawn(gate, [], (0, 1))
        await turns()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        gate.finished(0, 0)
        assert gate.ledger.standing == 1

    run(scenario())


def test_an_epoch_is_waited_for_until_all_have_finished_it() -> None:
    async def scenario() -> None:
        gate = Gate(Ledger(2, 1, first_synchronous=False))
        for interval, epoch in ((0, 0), (0, 1), (1, 0), (1, 1)):
            await gate.enter(interval, epoch)
        both = [asyncio.create_task(gate.all_finished(epoch)) for epoch in (1, 0)]
        done = []
        for interval, epoch in ((0, 0), (0, 1), (1, 0), (1, 1)):
            gate.finished(interval, epoch)
            await turns()
            done.append([task.done() for task in both])
        assert done == [[False, False], [False, False], [False, True], [True, True]]
        await gate.all_finished(1)  # is over already

    run(scenario())
