from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dorylax.pipeline.messages import Completed, Started
from dorylax.pipeline.parameters.records import Applied
from dorylax.pipeline.progress import Progress
from dorylax.pipeline.staleness import Allowance, Ledger


def make(intervals: int = 2, staleness: int = 0, **options: Any) -> tuple[Progress, list[Allowance]]:
    progress, told = Progress(Ledger(intervals, staleness, **options)), list[Allowance]()
    progress.join(told.append)
    return progress, told


def applied(*pairs: tuple[int, int], loss: float = 1.0) -> Applied:
    return Applied(1, pairs, tuple(loss + interval for interval, _ in pairs))


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("order", ["walk apply", "apply walk", "walk walk apply", "apply apply walk"])
def test_an_epoch_is_finished_when_it_is_walked_and_applied(order: str) -> None:
    """In either order, and however often either is said."""
    progress, told = make(intervals=1)
    progress.hear(Started(0, 0))
    for half in order.split():
        assert progress.ledger.min_epoch == 0
        assert not told
        if half == "walk":
            progress.hear(Completed(0, 0))
        else:
            progress.applied(applied((0, 0)))
    assert progress.ledger.min_epoch == 1
    assert [one.horizon for one in told] == [1]
    progress.hear(Completed(0, 0))
    progress.applied(applied((0, 0)))
    assert len(told) == 1


def test_repeats_of_a_half_leave_nothing_behind() -> None:
    """What is said again of an epoch that is over is no half of it, nor of its loss."""
    progress, _ = make(intervals=1, staleness=1, first_synchronous=False)
    progress.hear(Started(0, 0))
    progress.hear(Completed(0, 0))
    progress.applied(applied((0, 0), loss=2.0))
    progress.hear(Completed(0, 0))
    assert not progress._completed
    progress.applied(applied((0, 0), loss=5.0))
    assert not progress._applied
    assert asyncio.run(progress.finished(0)) == 2.0


def test_an_epoch_is_waited_for_until_all_have_finished_it_and_gives_its_loss() -> None:
    async def scenario() -> None:
        progress, _ = make(staleness=1, first_synchronous=False)
        every = [(0, 0), (0, 1), (1, 0), (1, 1)]
        for pair in every:
            progress.hear(Started(*pair))
            progress.hear(Completed(*pair))
        both = [asyncio.create_task(progress.finished(epoch)) for epoch in (1, 0)]
        done = []
        for pair in every:
            progress.applied(applied(pair, loss=10.0 * pair[1]))
            await turns()
            done.append([task.done() for task in both])
        assert done == [[False, False], [False, False], [False, True], [True, True]]
        assert [task.result() for task in both] == [21.0, 1.0]

    asyncio.run(scenario())


def test_hosts_are_told_of_holds_releases_and_the_end_of_staleness() -> None:
    progress, told = make(staleness=2, first_synchronous=False)
    progress.hold(1)
    assert told[-1].horizon == 0
    progress.release(1)
    assert told[-1].horizon == 0  # a barrier all the same
    for interval in range(2):
        progress.hear(Started(interval, 0))
        progress.hear(Completed(interval, 0))
        progress.applied(applied((interval, 0)))
    assert told[-1].horizon == 3
    decided: list[int] = []
    assert progress.synchronise(decided.append) == 1
    assert decided == [1]
    assert told[-1].synchronous_from == 1
    assert told[-1].horizon == 1
    assert progress.drain() == 1
    assert told[-1].horizon == 0


def test_a_release_is_told_where_all_have_come_to_the_barrier() -> None:
    progress, told = make(intervals=1)
    progress.hold(1)
    progress.hear(Started(0, 0))
    progress.hear(Completed(0, 0))
    progress.applied(applied((0, 0)))
    assert told[-1].horizon == 0
    progress.release(1)
    assert told[-1].horizon == 1
