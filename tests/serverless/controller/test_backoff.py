"""Controllers whose calls are throttled, on the virtual clock: by a script, and by a cloud that limits calls."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from support.scripted_backend import Act, Asked, asking, task

from dorylax.clock import VirtualClock
from dorylax.net.errors import TaskFailedError
from dorylax.serverless.controller import Call, Controller, Hedging, SlotLimit, Throttle
from dorylax.serverless.controller.backoff import Backoff
from dorylax.serverless.task import TaskKey, TensorResult, TensorTask

either_way = pytest.mark.parametrize("deadline", [None, 1e6], ids=["in place", "watched"])
THROTTLE = Act("throttle", 0.01)


@either_way
def test_throttled_is_not_failed(deadline: float | None) -> None:
    with asking({0: [THROTTLE] * 5}, attempts=1, deadline=deadline) as asked:
        assert asked.play(0) == [(0, 5)]
        assert [call[-1] for call in asked.outcomes] == ["throttled"] * 5 + ["answered"]
        asked.drain()
        assert asked.limit.taken == 0


@either_way
def test_failures_between_refusals_count(deadline: float | None) -> None:
    with VirtualClock() as clock:
        script = {0: [THROTTLE, Act("fail"), THROTTLE, Act("fail")]}
        asked = Asked(clock, script, attempts=2, deadline=deadline)
        (error,) = clock.run(asked.run(0))
        assert "failed 2 times; the last failure: worker 3 died" in str(error)


def test_releasing_after_a_pause_begins_no_new_round() -> None:
    limit, key = SlotLimit(8), TaskKey(0, 0, 0, 0)

    async def main(clock: VirtualClock) -> None:
        backoff = Backoff(Throttle(first=1.0), limit, clock)
        backoff.refused(key, 0.0, 4, (0,))
        await clock.sleep(2.0, (1,))
        start = clock.now()
        await clock.sleep(1.0, (2,))
        backoff.release()
        assert limit.try_acquire()
        backoff.refused(key, start, 4, (3,))  # counts: it began after the pause
        assert not limit.try_acquire()
        backoff.release()

    with VirtualClock() as clock:
        clock.run(main(clock))


@either_way
def test_nothing_begins_in_a_pause(deadline: float | None, caplog: pytest.LogCaptureFixture) -> None:
    with VirtualClock() as clock, caplog.at_level(logging.INFO, "dorylax.controller"):
        throttle = Throttle(first=8.0)
        asked = Asked(clock, {0: [THROTTLE]}, slots=2, deadline=deadline, throttle=throttle)
        assert clock.run(asked.run(0, 1, 2)) == [(0, 1), (1, 0), (2, 0)]
        starts = {call[:2]: call[2] for call in asked.outcomes}
        assert starts[0, 0] == starts[1, 0] == 0.0
        assert 4.0 <= starts[2, 0] - 0.01 <= 8.0
        # One at a time after it: seven tenths of two. Those that came before go first.
        assert starts[0, 1] == starts[2, 0] + 1.0
    (record,) = caplog.records
    assert "a call beside 1 others was throttled: none begins for" in record.getMessage()
    assert record.levelname == "WARNING"


@either_way
def test_without_hope_the_task_fails_and_says_so(deadline: float | None) -> None:
    with VirtualClock() as clock:
        throttle = Throttle(patience=60.0)
        asked = Asked(clock, {0: [THROTTLE] * 999}, deadline=deadline, throttle=throttle)
        (error,) = clock.run(asked.run(0))
        assert isinstance(error, TaskFailedError)
        assert error.reason != "throttled"
        number = len(asked.outcomes) - 1
        assert str(error) == (
            "tensor task of stage 3, interval 0, epoch 0, chunk 0 was not begun: every call has been throttled for "
            f"60 seconds; the last refusal: attempt {number} is one too many"
        )
        assert 60.0 <= clock.now() < 90.0
        assert number < 20
        clock.run(asked.controller.drain())
        assert asked.limit.taken == 0


@either_way
def test_draining_ends_a_pause(deadline: float | None) -> None:
    async def main(clock: VirtualClock, asked: Asked) -> list[Any]:
        cancelled = asyncio.ensure_future(asked.controller.run(task(0)))
        await clock.sleep(1.0, ())
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        await asked.controller.drain()
        return await asked.run(1)

    with asking({0: [THROTTLE] * 9}, slots=1, deadline=deadline, throttle=Throttle(first=20.0)) as asked:
        assert asked.clock.run(main(asked.clock, asked)) == [(1, 0)]
        assert asked.clock.now() == 2.0
        asked.clock.jump(1e9)  # nothing is left on the clock


def test_an_attempt_that_is_throttled_after_its_deadline_counts_who_runs_then(caplog: pytest.LogCaptureFixture) -> None:
    """It has no slot any more; the attempt that took its place has."""
    with asking({0: [Act("throttle", 5.0), Act("answer", 2.0)]}, deadline=4.0) as asked:
        assert asked.play(0) == [(0, 1)]
    assert "a call beside 1 others was throttled" in caplog.text


def test_a_relaunch_that_is_throttled_leaves_the_straggler_alone() -> None:
    with asking({0: [Act("answer", 20.0), THROTTLE]}, threshold=5.0) as asked:
        assert asked.play(0) == [(0, 0)]  # one call at a time is what the refusal has left
        asked.drain()
        assert [call[-1] for call in asked.outcomes] == ["throttled", "answered"]
        assert asked.controller.relaunched == 0  # it did not begin
        assert len(asked.limit._queue) == asked.limit.taken == 0


def test_a_relaunch_that_is_throttled_first_counts_once() -> None:
    async def main(clock: VirtualClock, asked: Asked) -> list[Any]:
        late = asyncio.ensure_future(asked.run(0))
        await clock.sleep(1.5, ())
        await asked.run(*range(1, 7))  # so many run beside the refusal, that it leaves slots
        return await late

    with VirtualClock() as clock:
        script = {0: [Act("answer", 20.0), THROTTLE], **{k: [Act("answer", 4.0)] for k in range(1, 7)}}
        asked = Asked(clock, script, slots=8, threshold=5.0)
        assert clock.run(main(clock, asked)) == [(0, 2)]
        assert [call[-1] for call in asked.outcomes if call[0] == 0] == ["throttled", "answered"]
        assert asked.controller.relaunched == 1


class Cloud:
    """Takes so many calls at a time, of all controllers together; each takes a second, a refusal a hundredth."""

    def __init__(self, clock: VirtualClock, limit: int) -> None:
        self._clock, self.limit, self.running, self.most, self.refusals = clock, limit, 0, 0, 0

    async def run(self, task: TensorTask, attempt: int) -> TensorResult:
        start, order = self._clock.now(), (*task.key, attempt)
        if self.running >= self.limit:
            self.refusals += 1
            await self._clock.sleep(0.01, order)
            raise TaskFailedError("Rate Exceeded.", "throttled")
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self._clock.sleep(1.0, order)
        finally:
            self.running -= 1
        return TensorResult((), start, self._clock.now())

    async def warm(self) -> None: ...

    def close(self) -> None: ...


def crowd(controllers: int, slots: int, limit: int, tasks: int, *, lifted: float | None = None) -> tuple[Any, ...]:
    """Controllers share a cloud; gives the seconds that all tasks took, refusals, and all calls."""
    calls: list[Call] = []

    async def main(clock: VirtualClock, cloud: Cloud) -> None:
        made = [
            Controller(
                cloud,
                clock,
                limit=SlotLimit(slots),
                hedging=Hedging(),
                attempts=1,
                deadline=None,
                on_call=calls.append,
            )
            for _ in range(controllers)
        ]
        runs = [asyncio.ensure_future(made[k % controllers].run(_task(TaskKey(0, k, 3, 0)))) for k in range(tasks)]
        if lifted is not None:
            await clock.sleep(lifted, ())
            cloud.limit = controllers * slots
        await asyncio.gather(*runs)
        for one in made:
            await one.drain()

    with VirtualClock() as clock:
        cloud = Cloud(clock, limit)
        clock.run(main(clock, cloud))
        return clock.now(), cloud.refusals, cloud.most, calls


def _task(key: TaskKey) -> TensorTask:
    return TensorTask(key, 0, -1, (), (), (), (), count=2, size=2, flops=0, bytes_in=0, bytes_out=0)


@pytest.mark.parametrize(("controllers", "slots"), [(1, 256), (8, 32)])
def test_a_cloud_that_takes_fewer_than_there_are_slots_is_used_well(controllers: int, slots: int) -> None:
    limit, tasks = 100, 4000
    seconds, refusals, most, calls = crowd(controllers, slots, limit, tasks)
    print(f"{seconds:.1f} s, ideal {tasks / limit:.1f} s, {refusals} refusals")
    assert most == limit
    assert seconds < 1.7 * tasks / limit
    assert refusals < tasks / 4
    assert sum(call.outcome == "throttled" for call in calls) == refusals
    assert sum(call.outcome == "answered" for call in calls) == tasks


def test_throttled_runs_repeat_to_the_bit() -> None:
    assert crowd(4, 16, 20, 300) == crowd(4, 16, 20, 300)


def test_when_the_cloud_takes_all_again_all_slots_are_used() -> None:
    seconds, _, most, calls = crowd(1, 64, 8, 4000, lifted=20.0)
    assert most == 64
    running = [sum(call.start <= at < call.end for call in calls) for at in (seconds - 3.5, seconds - 2.5)]
    assert running == [64, 64]
