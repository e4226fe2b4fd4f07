"""What both clocks have in common."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator

import pytest

from dorylax.clock import Clock, RealClock, Request, Timed, VirtualClock


@pytest.fixture(params=[RealClock, VirtualClock], ids=["real", "virtual"])
def clock(request: pytest.FixtureRequest) -> Iterator[Clock]:
    clock = request.param()
    yield clock
    clock.close()


async def forever() -> None:
    await asyncio.Event().wait()


def test_work_is_timed(clock):
    workers = clock.workers("graph", 1)

    async def main():
        first = await workers.run(clock.now, seconds=0.5, order=(0,))
        return first, await workers.run(clock.now, seconds=0.5, order=(0,))

    first, second = clock.run(main())
    assert first.start <= first.value <= first.end <= second.start <= second.value <= second.end <= clock.now()


def test_no_more_work_at_a_time_than_slots_and_all_is_done(clock):
    workers = clock.workers("graph", 3)

    async def main():
        runs = (workers.run(lambda: None, seconds=0.1, order=(k,)) for k in range(20))
        return await asyncio.gather(*runs)

    times = clock.run(main())
    changes = sorted([(t.start, 1) for t in times] + [(t.end, -1) for t in times])
    busy = most = 0
    for _, change in changes:
        busy += change
        most = max(most, busy)
    assert busy == 0
    assert 1 <= most <= 3


def test_several_things_are_done_by_as_many_workers_as_there_are(clock):
    workers, told = clock.workers("graph", 2), {}

    async def main():
        requests = [Request(lambda k=k: (k, clock.now()), 0.1 * k, (k,)) for k in range(5)]
        return await workers.run_all(requests, told.__setitem__)

    times = clock.run(main())
    assert [one.value[0] for one in times] == list(range(5))
    assert told == dict(enumerate(times))
    assert all(one.start <= one.value[1] <= one.end for one in times)
    changes = sorted([(one.start, 1) for one in times] + [(one.end, -1) for one in times])
    assert max(sum(change for _, change in changes[:k]) for k in range(len(changes) + 1)) <= 2


def test_one_of_several_that_fails_fails_them_and_keeps_no_worker(clock):
    workers, told = clock.workers("graph", 1), {}

    async def main():
        requests = [Request(lambda k=k: 1 // k, 0.0, (k,)) for k in (1, 0, 2)]
        with pytest.raises(ZeroDivisionError):
            await workers.run_all(requests, told.__setitem__)
        return await workers.run(lambda: 7, seconds=0.0, order=())

    assert clock.run(main()).value == 7
    assert isinstance(told[0], Timed)
    assert told[1] is None


def test_an_error_of_the_work_reaches_its_caller_and_frees_the_worker(clock):
    workers = clock.workers("graph", 1)

    async def main():
        with pytest.raises(ZeroDivisionError):
            await workers.run(lambda: 1 // 0, seconds=1.0, order=())
        return await workers.run(lambda: 7, seconds=0.0, order=())

    assert clock.run(main()).value == 7


def test_a_cancelled_wait_gives_its_place_up(clock):
    workers = clock.workers("graph", 1)
    done, gate = [], threading.Event()

    async def one(name):
        await workers.run(
            lambda: (gate.wait(0 if clock.kind == "virtual" else 60), done.append(name)), seconds=1.0, order=()
        )

    async def main():
        tasks = [asyncio.create_task(one(name)) for name in "abc"]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.wait([tasks[1]])
        gate.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        return [type(result) for result in results]

    assert clock.run(main()) == [type(None), asyncio.CancelledError, type(None)]
    assert done == ["a", "c"]


def test_other_tasks_stay_where_they_are_between_runs(clock):
    ticks = []

    async def background():
        while True:
            ticks.append(clock.now())
            await clock.sleep(0.001, (1,))

    clock.spawn(background())
    assert ticks == []
    clock.run(clock.sleep(0.0105, (0,)))
    seen = len(ticks)
    assert seen > 1
    clock.run(clock.sleep(0.0105, (0,)))
    assert len(ticks) > seen


def test_run_takes_a_task(clock):
    async def main():
        await clock.sleep(0.0, ())
        return 3

    task = clock.spawn(main(), name="three")
    assert task.get_name() == "three"
    assert clock.run(task) == 3
    assert clock.run(task) == 3


def test_a_failing_task_stops_the_run(clock):
    ended = []

    async def failing():
        await clock.sleep(0.01, ())
        raise LookupError("lost")

    async def main():
        try:
            await forever()
        finally:
            ended.append("main")

    clock.spawn(failing())
    with pytest.raises(LookupError, match="lost"):
        clock.run(main())
    clock.run(clock.sleep(0.0, ()))  # raised once
    assert ended == ["main"]  # nobody waits for it: cancelled


def test_the_first_of_several_failures_is_raised(clock):
    async def failing(name):
        raise LookupError(name)

    for name in ("first", "second"):
        clock.spawn(failing(name))
    with pytest.raises(LookupError, match="first"):
        clock.run(forever())


def test_a_failure_counts_although_another_task_handles_it(clock):
    async def failing():
        raise LookupError("lost")

    task = clock.spawn(failing())

    async def main():
        await asyncio.gather(task, return_exceptions=True)

    with pytest.raises(LookupError, match="lost"):
        clock.run(main())


def test_a_failure_that_passes_through_what_was_run_is_raised_once(clock):
    async def failing():
        raise LookupError("lost")

    async def main():
        await clock.spawn(failing())

    with pytest.raises(LookupError, match="lost"):
        clock.run(main())
    clock.run(clock.sleep(0.0, ()))
    gc.collect()  # now asyncio would speak of an exception that nobody took
    clock.run(clock.sleep(0.0, ()))


def test_a_failing_callback_stops_the_run(clock):
    async def main():
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await forever()

    with pytest.raises(ZeroDivisionError):
        clock.run(main())


def test_ctrl_c_leaves_a_clock_that_can_be_closed(clock):
    ended = []

    async def interrupted():
        await clock.sleep(0.001, ())
        raise KeyboardInterrupt

    async def other():
        try:
            await forever()
        finally:
            await clock.sleep(0.001, ())
            ended.append(True)

    clock.spawn(other())
    clock.spawn(interrupted())
    with pytest.raises(KeyboardInterrupt):
        clock.run(forever())
    clock.close()
    assert ended == [True]


def test_close_ends_all_tasks_and_raises_what_their_clean_up_raises(clock):
    ended = []

    async def stubborn(name):
        try:
            await forever()
        finally:
            ended.append(name)
            if name == "b":
                raise LookupError("clean-up")

    async def main():
        tasks.append(asyncio.create_task(stubborn("b")))
        await clock.sleep(0.0, ())

    tasks = [clock.spawn(stubborn(name)) for name in "ac"]
    clock.run(main())
    with pytest.raises(LookupError, match="clean-up"):
        clock.close()
    assert sorted(ended) == ["a", "b", "c"]
    clock.close()


@pytest.mark.parametrize("seconds", [0.0, 0.01])
def test_closing_gives_up_what_was_to_be_called_later(clock, seconds):
    """Also what comes due while tasks still end."""
    called, ended = [], []

    async def slow_to_end():
        try:
            await forever()
        finally:
            await clock.sleep(0.02, ())
            ended.append(True)

    async def main():
        await clock.sleep(0.0, ())

    clock.spawn(slow_to_end())
    clock.run(main())
    clock.after(seconds, (), lambda: called.append(clock.spawn(forever())), name="late")
    clock.close()
    assert (called, ended) == ([], [True])


def test_a_closed_clock_refuses(clock):
    with clock:
        pass
    with pytest.raises(RuntimeError, match="the clock is closed"):
        clock.run(forever())
    with pytest.raises(RuntimeError, match="the clock is closed"):
        clock.spawn(forever())


def test_a_task_cannot_run_or_close_its_own_clock(clock):
    async def main(call):
        call()

    with pytest.raises(RuntimeError, match="cannot be run from one of its own tasks"):
        clock.run(main(lambda: clock.run(forever())))
    with pytest.raises(RuntimeError, match="cannot be closed from one of its own tasks"):
        clock.run(main(clock.close))


def test_under_a_loop_that_runs_already(clock):
    """As in a notebook."""
    workers = clock.workers("graph", 1)

    async def failing():
        raise LookupError("lost")

    async def cell():
        assert clock.run(workers.run(lambda: 5, seconds=1.0, order=())).value == 5
        clock.spawn(failing())
        with pytest.raises(LookupError, match="lost"):
            clock.run(forever())
        clock.close()

    asyncio.run(cell())


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_what_is_no_duration_is_refused(clock, seconds):
    workers = clock.workers("graph", 1)
    with pytest.raises(ValueError, match="seconds must be finite and ≥ 0"):
        clock.run(clock.sleep(seconds, ()))
    with pytest.raises(ValueError, match="seconds must be finite and ≥ 0"):
        clock.run(workers.run(lambda: None, seconds=seconds, order=()))


def test_workers_need_a_slot(clock):
    with pytest.raises(ValueError, match="workers 'graph' need at least 1 slot, got 0"):
        clock.workers("graph", 0)
