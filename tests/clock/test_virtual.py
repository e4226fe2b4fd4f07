from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylax.clock import Request, Use, VirtualClock
from dorylax.errors import RunError

ROOT = Path(__file__).parent.parent.parent


def test_computes_at_the_start_and_returns_at_the_end():
    with VirtualClock() as clock:
        workers, computed = clock.workers("graph", 1), []

        async def main():
            return await asyncio.gather(
                *(workers.run(lambda: computed.append(clock.now()), seconds=s, order=()) for s in (2.0, 0.0, 3.0))
            )

        times = clock.run(main())
    assert computed == [0.0, 2.0, 2.0]
    assert [(t.start, t.end) for t in times] == [(0.0, 2.0), (2.0, 2.0), (2.0, 5.0)]


@given(
    slots=st.integers(1, 3),
    groups=st.lists(
        st.tuples(st.integers(0, 3), st.lists(st.integers(0, 4), min_size=1, max_size=5)), min_size=1, max_size=4
    ),
)
def test_several_things_at_once_are_done_as_if_each_had_a_task(slots, groups):
    """Each group comes at a time of its own; half of what its members take, they take of a memory that all share."""

    def times(together):
        with VirtualClock() as clock:
            memory, workers = clock.shared(lambda counts: [4.0 / max(1, counts[0])]), clock.workers("graph", slots)
            found = []

            def request(group, k, seconds):
                shared = ((Use((memory,), 2.0 * seconds),),) if seconds else ()
                return Request(lambda: found.append((group, k, clock.now())), (float(seconds), *shared), (group, k))

            async def one(group, begin, members):
                await clock.sleep(float(begin), (-1, group))
                requests = [request(group, k, seconds) for k, seconds in enumerate(members)]
                if together:
                    timed = await workers.run_all(requests, lambda *_: None)
                else:
                    timed = await asyncio.gather(
                        *(workers.run(one.work, seconds=one.seconds, order=one.order) for one in requests)
                    )
                return [(one.start, one.end) for one in timed], clock.now()

            async def main():
                return await asyncio.gather(*(one(group, *given) for group, given in enumerate(groups)))

            return clock.run(main()), found

    assert times(together=True) == times(together=False)


@pytest.mark.parametrize("when", [1.0, 6.0])
def test_several_things_that_are_given_up_keep_no_worker_and_share_nothing(when):
    """While the first is done, at 1 s, and at 6 s the second, of which the first has been told."""
    told = []
    with VirtualClock() as clock:
        workers, memory = clock.workers("graph", 1), clock.shared(lambda counts: [4.0 / max(1, counts[0])])

        async def main():
            requests = [Request(lambda: 7, ((Use((memory,), 20.0),),), (k,)) for k in range(3)]
            task = asyncio.ensure_future(workers.run_all(requests, lambda place, timed: told.append((place, timed))))
            await clock.sleep(when, ())
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return await workers.run(lambda: 8, seconds=((Use((memory,), 4.0),),), order=())

        done = clock.run(main())
    assert (done.value, done.start, done.end) == (8, when, when + 1.0)
    assert [(place, timed and timed.value) for place, timed in told] == [
        (0, 7 if when > 5 else None),
        (1, None),
        (2, None),
    ]


def test_ties_go_by_order_then_sequence():
    happened = []

    async def one(clock, name, order):
        await clock.sleep(1.0, order)
        happened.append(name)

    with VirtualClock() as clock:

        async def main():
            orders = {"a": (2, 0), "b": (1, 5), "c": (1,), "d": (1, 5)}
            await asyncio.gather(*(one(clock, name, order) for name, order in orders.items()))

        clock.run(main())
    assert happened == ["c", "b", "d", "a"]


def test_what_is_ready_runs_before_the_next_event():
    happened = []

    async def main(clock):
        first = asyncio.Event()

        async def sleeper(order):
            await clock.sleep(1.0, (order,))
            happened.append(order)
            first.set()

        async def follower():
            await first.wait()
            for _ in range(5):
                await asyncio.sleep(0)
            happened.append("follower")

        await asyncio.gather(follower(), sleeper(0), sleeper(1))

    with VirtualClock() as clock:
        clock.run(main(clock))
    assert happened == [0, "follower", 1]


def test_nobody_overtakes_who_waits_for_a_worker():
    served = []

    async def main(clock):
        workers = clock.workers("graph", 1)

        async def one(name, arrival, order):
            await clock.sleep(arrival, order)
            await workers.run(lambda: served.append(name), seconds=1.0, order=order)
            if name == "a":  # back in the moment its worker is free
                await workers.run(lambda: served.append("again"), seconds=1.0, order=order)

        await asyncio.gather(one("a", 0.0, (3,)), one("b", 0.2, (2,)), one("c", 0.1, (9,)))

    with VirtualClock() as clock:
        clock.run(main(clock))
    assert served == ["a", "c", "b", "again"]


def test_cancelled_work_frees_its_worker_at_once_and_leaves_no_event():
    with VirtualClock() as clock:
        workers = clock.workers("graph", 1)

        async def main():
            long = asyncio.create_task(workers.run(lambda: None, seconds=100.0, order=()))
            await clock.sleep(1.0, ())
            long.cancel()
            next_one = await workers.run(lambda: None, seconds=1.0, order=())
            assert (next_one.start, next_one.end) == (1.0, 2.0)
            await asyncio.Event().wait()

        with pytest.raises(RunError, match="every task waits"):
            clock.run(main())
        assert clock.now() == 2.0


def test_a_worker_handed_to_a_task_in_the_moment_it_is_cancelled_goes_to_the_next():
    with VirtualClock() as clock:
        workers = clock.workers("graph", 1)

        async def one():
            return await workers.run(clock.now, seconds=1.0, order=(0,))

        async def main():
            async def first():
                await one()
                second.cancel()  # which has the worker already, but is not awake yet

            asyncio.create_task(first())  # noqa: RUF006
            await asyncio.sleep(0)
            second, third = asyncio.create_task(one()), asyncio.create_task(one())
            return (await third).start

        assert clock.run(main()) == 1.0


def test_timers_of_asyncio_are_virtual():
    with VirtualClock() as clock:

        async def main():
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5000.0):
                    await asyncio.Event().wait()
            async with asyncio.timeout(1e9):  # in time: its timer is gone
                await asyncio.sleep(1000.0)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.sleep(10.0), 0.25)

        clock.run(main())
        assert clock.now() == 6000.25


def test_deadlock_names_who_waits_and_more_can_run():
    with VirtualClock() as clock:
        gate = asyncio.Event()

        async def waiter():
            await gate.wait()

        async def main():
            await clock.sleep(1.0, ())
            await gate.wait()

        for name in ("interval 7", "interval 3"):
            clock.spawn(waiter(), name=name)
        run = clock.spawn(main(), name="epoch")
        with pytest.raises(RunError, match=r"no event is left on the virtual clock: epoch, interval 3, interval 7$"):
            clock.run(run)
        gate.set()
        clock.run(run)


def test_a_long_list_of_who_waits_is_cut():
    with VirtualClock() as clock:
        gate = asyncio.Event()
        tasks = [clock.spawn(gate.wait(), name=f"{k:02}") for k in range(20)]
        with pytest.raises(RunError, match=r"10, 11 and 8 more$"):
            clock.run(tasks[0])
        gate.set()
        clock.run(tasks[-1])


def events(
    clock: VirtualClock, plan: list[tuple[int, list[tuple[int, int]]]], slots: int
) -> list[tuple[float, float, int]]:
    """Runs coroutines that use workers, wait for each other and are cancelled; returns what happened, in order."""
    workers, happened = clock.workers("graph", slots), []

    async def one(k, delay, tasks):
        await clock.sleep(float(delay), (k,))
        for seconds, order in tasks:
            timed = await workers.run(lambda: None, seconds=float(seconds), order=(order, k))
            happened.append((timed.start, timed.end, k))

    async def main():
        made = [asyncio.create_task(one(k, delay, tasks)) for k, (delay, tasks) in enumerate(plan)]
        await clock.sleep(3.0, ())
        for task in made[::4]:
            task.cancel()
        await asyncio.gather(*made, return_exceptions=True)

    clock.run(main())
    return happened


PLANS = st.lists(
    st.tuples(st.integers(0, 3), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=4)), max_size=8
)


@given(plan=PLANS, slots=st.integers(1, 3))
def test_work_keeps_slots_busy_and_nothing_is_lost(plan, slots):
    with VirtualClock() as clock:
        happened = events(clock, plan, slots)
    done = [k for _, _, k in happened]
    for k, (_, tasks) in enumerate(plan):
        assert done.count(k) == len(tasks) or (k % 4 == 0 and done.count(k) < len(tasks))
    assert [end for _, end, _ in happened] == sorted(end for _, end, _ in happened)
    for instant, _, _ in happened:
        assert sum(start <= instant < end for start, end, _ in happened) <= slots


SCRIPT = """
import random
from dorylax.clock import VirtualClock
from test_virtual import events
draw = random.Random(5)
plan = [(draw.randrange(3), [(draw.randrange(3), draw.randrange(3)) for _ in range(5)]) for _ in range(40)]
with VirtualClock() as clock:
    print(events(clock, plan, 3), {name for name in "abcdefgh"})
"""


def test_the_same_sequence_of_events_whatever_the_seeds_of_hashes():
    paths = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
    printed = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.rsplit("{", 1)
        for seed in ("1", "2")
    ]
    assert printed[0][0] == printed[1][0]
    assert printed[0][1] != printed[1][1]  # the seeds did something


def test_what_is_called_later_goes_by_order_and_needs_no_task():
    happened = []
    with VirtualClock() as clock:
        memory = clock.shared(lambda counts: [4.0 / max(1, counts[0])])

        async def main():
            for k, seconds in ((2, 3.0), (0, 3.0), (3, (1.0, (Use((memory,), 4.0),))), (1, (2.0, 1.0))):
                clock.after(seconds, (k,), lambda k=k: happened.append((k, clock.now())), name="any")
            assert len(asyncio.all_tasks()) == 1
            await clock.sleep(3.0, (9,))

        clock.run(main())
    assert happened == [(3, 2.0), (0, 3.0), (1, 3.0), (2, 3.0)]


def test_an_error_of_what_is_called_later_ends_the_run():
    def fail():
        raise LookupError("nobody there")

    with VirtualClock() as clock:

        async def main():
            clock.after(1.0, (), fail, name="any")
            await clock.sleep(5.0, ())

        with pytest.raises(LookupError, match="nobody there"):
            clock.run(main())
        assert clock.now() == 1.0
        clock.run(clock.sleep(1.0, ()))  # it goes on
        assert clock.now() == 2.0


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), (0.0, -1.0)])
def test_nothing_is_called_before_now(seconds):
    with VirtualClock() as clock, pytest.raises(ValueError, match="seconds must be finite and ≥ 0"):
        clock.after(seconds, (), lambda: None, name="any")
