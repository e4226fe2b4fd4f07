"""A part of a clock that is given up: what it has begun ends, and nothing else."""

from __future__ import annotations

import asyncio
import threading

import pytest

from dorylax.clock import RealClock, VirtualClock
from dorylax.clock.base import Clock
from dorylax.clock.scope import ClockScope


@pytest.mark.parametrize("make", [RealClock, VirtualClock])
def test_its_tasks_end_and_others_go_on(make: type[RealClock] | type[VirtualClock]) -> None:
    ended: list[str] = []

    async def life(clock: Clock, name: str, seconds: float) -> None:
        try:
            await clock.sleep(seconds, (0,))
            ended.append(name)
        finally:
            ended.append(f"{name} cleaned up")

    with make() as clock:
        scope = ClockScope(clock)
        inner = ClockScope(scope)
        assert scope.kind == clock.kind

        async def all_of_it() -> None:
            other = clock.spawn(life(clock, "other", 0.02))
            scope.spawn(life(scope, "mine", 10))
            inner.spawn(life(inner, "inner", 10))
            await clock.sleep(0.01, (1,))
            await scope.abandon()
            assert sorted(ended) == ["inner cleaned up", "mine cleaned up"]
            await other

        clock.run(all_of_it())
        assert clock.now() < 5
    assert ended[2:] == ["other", "other cleaned up"]


def test_what_workers_have_begun_is_waited_for() -> None:
    begun, done = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert done.wait(30)

    with RealClock() as clock:
        scope = ClockScope(clock)

        async def all_of_it() -> None:
            scope.spawn(wait())
            await asyncio.to_thread(begun.wait, 30)
            abandoning = clock.spawn(scope.abandon())
            await asyncio.sleep(0.02)
            assert not abandoning.done()
            done.set()
            await abandoning

        async def wait() -> None:
            await scope.workers("mine", 1).run(work, seconds=0.0, order=())

        clock.run(all_of_it())
        assert not [one for one in threading.enumerate() if one.name.startswith("mine")]


@pytest.mark.parametrize("make", [RealClock, VirtualClock])
def test_what_asks_it_for_a_task_once_it_is_abandoned_gets_one_that_never_begins(
    make: type[RealClock] | type[VirtualClock],
) -> None:
    begun: list[str] = []

    async def late() -> None:
        begun.append("late")

    with make() as clock:
        scope = ClockScope(clock)

        async def all_of_it() -> None:
            await scope.abandon()
            task = scope.spawn(late())
            await asyncio.wait([task])
            assert task.cancelled()

        clock.run(all_of_it())
    assert begun == []


def test_what_was_to_be_called_is_given_up_with_the_rest():
    happened = []
    with VirtualClock() as clock:
        scope = ClockScope(clock)

        async def main():
            scope.after(1.0, (), lambda: happened.append(1), name="before")
            scope.after(3.0, (), lambda: happened.append(3), name="after")
            await clock.sleep(2.0, ())
            await scope.abandon()
            await clock.sleep(2.0, ())

        clock.run(main())
    assert happened == [1]
