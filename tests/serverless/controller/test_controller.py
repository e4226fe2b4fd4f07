"""Tasks whose attempts answer, fail, straggle, or never end, on scripted backends."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.scripted_backend import Act, Asked, asking, task

from dorylax.clock import RealClock, VirtualClock
from dorylax.net.errors import TaskFailedError
from dorylax.serverless.controller import Call, Hedging, SlotLimit
from dorylax.serverless.task import TensorResult

CLOCKS = {"real": RealClock, "virtual": VirtualClock}
# Without stragglers and deadlines attempts are awaited in place; a deadline that never passes must change nothing.
either_way = pytest.mark.parametrize("deadline", [None, 1e6], ids=["in place", "watched"])
ANSWER, FAIL, BREAK, NEVER = Act("answer"), Act("fail"), Act("break"), Act("never")


def nothing_is_left(clock: VirtualClock) -> bool:
    """Whether nothing would ever happen on the clock."""
    clock.jump(clock.now() + 1e9)
    return True


# Slots.


@either_way
def test_tasks_take_slots_in_the_order_they_come(deadline: float | None) -> None:
    with asking({}, slots=2, deadline=deadline) as asked:
        assert asked.play(4, 3, 2, 1, 0) == [(4, 0), (3, 0), (2, 0), (1, 0), (0, 0)]
        assert asked.backend.begun == [(4, 0), (3, 0), (2, 0), (1, 0), (0, 0)]
        # Those that end at the same time end by their keys.
        assert asked.outcomes == [
            (3, 0, 0.0, 1.0, "answered"),
            (4, 0, 0.0, 1.0, "answered"),
            (1, 0, 1.0, 2.0, "answered"),
            (2, 0, 1.0, 2.0, "answered"),
            (0, 0, 2.0, 3.0, "answered"),
        ]
        assert asked.limit.taken == 0
        assert nothing_is_left(asked.clock)


@either_way
def test_the_limit_may_change_while_tasks_wait(deadline: float | None) -> None:
    async def main(clock: VirtualClock, asked: Asked) -> None:
        tasks = asyncio.ensure_future(asked.run(*range(5)))
        await clock.sleep(0.5, ())
        asked.controller.limit.set(4)
        await tasks

    with asking({}, slots=1, deadline=deadline) as asked:
        asked.clock.run(main(asked.clock, asked))
        assert [call[2] for call in asked.outcomes] == [0.0, 0.5, 0.5, 0.5, 1.0]


# Failures.


@pytest.mark.parametrize("kind", CLOCKS)
@either_way
def test_what_fails_is_repeated_with_the_same_inputs(kind: str, deadline: float | None) -> None:
    with CLOCKS[kind]() as clock:
        asked = Asked(clock, {0: [Act("fail", 0.001)] * 2 + [Act("answer", 0.001)]}, slots=1, deadline=deadline)
        assert clock.run(asked.run(0)) == [(0, 2)]
        assert [call[-1] for call in asked.outcomes] == ["failed", "failed", "answered"]
        assert [call[1] for call in asked.outcomes] == [0, 1, 2]
        assert all(one is asked.backend.tasks[0] for one in asked.backend.tasks)
        assert asked.limit.taken == 0


@either_way
def test_what_fails_too_often_says_how_often_and_why(deadline: float | None) -> None:
    with asking({7: [FAIL] * 9}, attempts=3, deadline=deadline) as asked:
        (error,) = asked.play(7)
    assert isinstance(error, TaskFailedError)
    text = "tensor task of stage 3, interval 7, epoch 0, chunk 0 failed 3 times; the last failure: worker 2 died"
    assert str(error) == text
    assert str(error.__cause__) == "worker 2 died"
    assert [call[-1] for call in asked.outcomes] == ["failed"] * 3


@either_way
def test_one_attempt_fails_once(deadline: float | None) -> None:
    with asking({0: [FAIL]}, attempts=1, deadline=deadline) as asked:
        (error,) = asked.play(0)
    assert "failed once; the last failure: worker 0 died" in str(error)


@either_way
def test_what_a_repetition_cannot_change_is_raised_at_once(deadline: float | None) -> None:
    with asking({0: [BREAK]}, deadline=deadline) as asked:
        with pytest.raises(ValueError, match="stage broke in attempt 0"):
            asked.clock.run(asked.controller.run(task(0)))
        assert asked.outcomes == [(0, 0, 0.0, 1.0, "failed")]
        assert asked.limit.taken == 0


@either_way
def test_what_failed_stands_in_line_behind_those_that_came(deadline: float | None) -> None:
    with asking({0: [FAIL]}, slots=1, deadline=deadline) as asked:
        asked.play(0, 1, 2)
        assert asked.backend.begun == [(0, 0), (1, 0), (2, 0), (0, 1)]


@pytest.mark.parametrize("kind", CLOCKS)
@either_way
def test_a_backend_that_cancels_by_itself_is_heard_of(kind: str, deadline: float | None) -> None:
    with CLOCKS[kind]() as clock:
        asked = Asked(clock, {0: [Act("stop", 0.001)]}, deadline=deadline)
        (error,) = clock.run(asked.run(0))
        assert isinstance(error, RuntimeError)
        assert "interval 0, epoch 0, chunk 0 was cancelled by its backend" in str(error)
        assert asked.limit.taken == 0


# Stragglers.


def test_a_straggler_is_called_again_and_the_first_answer_counts() -> None:
    with asking({0: [Act("answer", 20.0), Act("answer", 2.0)]}, threshold=5.0) as asked:
        assert asked.play(0) == [(0, 1)]
        assert asked.clock.now() == pytest.approx(7.0)
        assert asked.limit.taken == 1  # the straggler goes on in the background
        asked.drain()
        assert [(*call[:2], call[-1]) for call in asked.outcomes] == [(0, 1, "answered"), (0, 0, "late")]
        assert asked.outcomes[1][2:4] == (0.0, 20.0)
        assert asked.controller.relaunched == 1
        assert asked.limit.taken == 0
        assert asked.backend.cancelled == []
        assert nothing_is_left(asked.clock)


def test_the_straggler_itself_may_answer_first() -> None:
    with asking({0: [Act("answer", 6.0), Act("answer", 9.0)]}, threshold=5.0) as asked:
        assert asked.play(0) == [(0, 0)]
        asked.drain()
        assert [(*call[:2], call[-1]) for call in asked.outcomes] == [(0, 0, "answered"), (0, 1, "late")]


def test_answers_as_late_as_allowed_are_no_stragglers() -> None:
    with asking({0: [Act("answer", 5.0)]}, threshold=5.0) as asked:
        asked.play(0)
        assert asked.backend.begun == [(0, 0)]


@pytest.mark.parametrize(("relaunches", "begun"), [(0, 1), (1, 2), (3, 4)])
def test_a_task_is_relaunched_so_often_at_most(relaunches: int, begun: int) -> None:
    with asking({0: [Act("answer", 100.0)] * 9}, slots=9, threshold=5.0, relaunches=relaunches) as asked:
        assert asked.play(0) == [(0, 0)]
        asked.drain()
        assert asked.backend.begun == [(0, k) for k in range(begun)]
        # Each when the one before it has become a straggler.
        starts = sorted(call[2] for call in asked.outcomes)
        assert starts == pytest.approx([5.0 * k for k in range(begun)], abs=1e-3)


def test_the_threshold_is_learned_and_calls_already_running_are_measured_by_it() -> None:
    """All begin before anything is known; twenty answers later the one that never comes is late."""
    hedging = Hedging(quantile=0.95)
    hedging.observe(3, -1.0, 0.0)  # a cold start, which is not counted
    script = {k: [Act("answer", k / 10)] for k in range(1, 21)}
    with asking({0: [NEVER], **script}, slots=30, hedging=hedging) as asked:
        assert asked.play(*range(21))[0] == (0, 1)
        # The 19th of 20 calls took 1.9 seconds, which have passed when the 20th has answered at 2; a new call takes 1.
        assert asked.clock.now() == 3.0


def test_beyond_the_budget_no_call_is_repeated() -> None:
    """The cluster has become slow: all calls are late, a tenth of the calls so far may be repeated."""
    hedging = Hedging(quantile=0.95)
    for k in range(-21, 0):
        hedging.observe(3, k - 1.0, k)
    with asking({k: [Act("answer", 9.0)] * 2 for k in range(8)}, slots=30, hedging=hedging) as asked:
        asked.play(*range(8))
        assert asked.controller.relaunched == 2


@pytest.mark.parametrize("fails", [False, True])
def test_beside_a_straggler_only_spare_slots_are_used(fails: bool) -> None:
    """Of a relaunch, and of the repetition of one that failed: tasks that come later go first."""

    async def main(clock: VirtualClock, asked: Asked) -> None:
        first = asyncio.ensure_future(asked.run(0))
        await clock.sleep(4.0, ())
        # One comes just before the relaunch, or its repetition, asks for the other slot; two come just after.
        await clock.sleep(1.5 if fails else 0.5, ())
        rest = [asyncio.ensure_future(asked.run(1))]
        await clock.sleep(0.75, ())
        rest.append(asyncio.ensure_future(asked.run(2, 3)))
        await asyncio.gather(first, *rest)

    with asking({0: [Act("answer", 50.0), FAIL if fails else ANSWER]}, slots=2, threshold=5.0) as asked:
        asked.clock.run(main(asked.clock, asked))
        relaunch = [(0, 1)] if fails else []
        last = (0, 2) if fails else (0, 1)
        assert asked.backend.begun == [(0, 0), *relaunch, (1, 0), (2, 0), (3, 0), last]


def test_a_relaunch_waits_for_nothing_with_one_slot() -> None:
    with asking({0: [Act("answer", 50.0)]}, slots=1, threshold=5.0) as asked:
        assert asked.play(0, 1) == [(0, 0), (1, 0)]
        assert asked.backend.begun == [(0, 0), (1, 0)]
        assert asked.controller.relaunched == 0  # asked for, but never called
        assert asked.limit.taken == 0
        assert nothing_is_left(asked.clock)


def test_a_relaunch_counts_once_it_is_a_call() -> None:
    async def main(clock: VirtualClock, asked: Asked) -> None:
        tasks = [asyncio.ensure_future(asked.run(interval)) for interval in (0, 1)]
        await clock.sleep(7.0, ())
        assert asked.controller.relaunched == 0  # of both calls that are late, neither has found a slot
        await tasks[1]
        await clock.sleep(0.5, ())
        assert asked.controller.relaunched == 1
        await tasks[0]

    with asking({0: [Act("answer", 50.0)], 1: [Act("answer", 8.0)]}, slots=2, threshold=5.0) as asked:
        asked.clock.run(main(asked.clock, asked))
        assert asked.backend.begun == [(0, 0), (1, 0), (0, 1)]


def test_a_relaunch_that_never_began_is_not_one_of_those_allowed() -> None:
    """While it waited, the straggler failed: what takes its place is a repetition, which may be late itself."""

    async def main(clock: VirtualClock, asked: Asked) -> list[Any]:
        task = asyncio.ensure_future(asked.run(0))
        await clock.sleep(10.0, ())
        asked.limit.set(2)
        return await task

    with asking({0: [Act("fail", 8.0), Act("answer", 50.0)]}, slots=1, threshold=5.0) as asked:
        assert asked.clock.run(main(asked.clock, asked)) == [(0, 2)]
        assert asked.clock.now() == pytest.approx(
            14.0
        )  # 8 for the failure, 5 until its repetition is late, 1 to answer
        assert asked.controller.relaunched == 1


def test_no_more_relaunches_than_allowed_whoever_straggles() -> None:
    with VirtualClock() as clock:
        slow = Act("answer", 100.0)
        asked = Asked(clock, {0: [Act("fail", 6.0), *[slow] * 5]}, slots=9, threshold=5.0, relaunches=2)
        clock.run(asked.run(0))
        clock.run(asked.controller.drain())
        # Relaunched at 5, repeated at 6, relaunched at 10; at 11 the repetition is a straggler too.
        assert sorted(call[2] for call in asked.outcomes) == pytest.approx([0.0, 5.0, 6.0, 10.0], abs=1e-3)
        assert asked.controller.relaunched == 2


def test_what_is_answered_is_not_relaunched() -> None:
    with asking({0: [Act("answer", 6.0), Act("answer", 100.0)]}, threshold=5.0, relaunches=2) as asked:
        asked.play(0)
        asked.drain()
        assert asked.backend.begun == [(0, 0), (0, 1)]


def test_a_relaunch_that_fails_is_repeated_beside_the_straggler() -> None:
    with asking({0: [Act("answer", 100.0), FAIL, FAIL, ANSWER]}, threshold=5.0, attempts=3) as asked:
        assert asked.play(0) == [(0, 3)]
        assert asked.clock.now() == pytest.approx(8.0)
        assert asked.controller.relaunched == 1


def test_a_task_has_not_failed_while_one_may_still_answer() -> None:
    with asking({0: [Act("answer", 100.0), FAIL]}, threshold=5.0, attempts=1) as asked:
        assert asked.play(0) == [(0, 0)]
        assert asked.clock.now() == 100.0


def test_a_failure_in_the_background_changes_nothing() -> None:
    for what in ("fail", "break", "stop"):
        with asking({0: [Act(what, 20.0), ANSWER]}, threshold=5.0) as asked:
            assert asked.play(0) == [(0, 1)]
            asked.drain()
            assert [call[-1] for call in asked.outcomes] == ["answered", "failed"]
            assert asked.backend.begun == [(0, 0), (0, 1)]
            assert asked.limit.taken == 0


def test_what_waits_for_a_spare_slot_stands_in_line_when_nothing_runs_any_more() -> None:
    """Else tasks that keep coming would keep it waiting for ever."""

    async def main(clock: VirtualClock, asked: Asked) -> list[Any]:
        first = asyncio.ensure_future(asked.run(0))
        rest = []
        for k in range(1, 9):
            rest.append(asyncio.ensure_future(asked.run(k)))
            await clock.sleep(1.0, (9, 9, 9, 9))
        await asyncio.gather(first, *rest)
        return asked.backend.begun

    with VirtualClock() as clock:
        script = {0: [Act("fail", 3.0)]} | {k: [Act("answer", 2.0)] for k in range(1, 9)}
        asked = Asked(clock, script, slots=1, threshold=2.5)
        begun = clock.run(main(clock, asked))
        assert begun.index((0, 1)) < begun.index((5, 0))


# Deadlines.


def test_the_deadline_frees_the_slot_and_the_task_is_repeated() -> None:
    with asking({0: [NEVER]}, slots=1, deadline=10.0) as asked:
        assert asked.play(0, 1) == [(0, 1), (1, 0)]
        assert asked.outcomes == [
            (0, 0, 0.0, 10.0, "deadline"),
            (1, 0, 10.0, 11.0, "answered"),
            (0, 1, 11.0, 12.0, "answered"),
        ]
        asked.drain()
        assert asked.backend.cancelled == [(0, 0)]
        assert len(asked.outcomes) == 3
        assert nothing_is_left(asked.clock)


def test_an_answer_at_the_deadline_is_in_time() -> None:
    with asking({k: [Act("answer", 10.0)] for k in range(3)}, deadline=10.0) as asked:
        asked.play(2, 0, 1)
        assert {call[-1] for call in asked.outcomes} == {"answered"}


def test_an_answer_after_its_deadline_counts_where_it_is_the_first() -> None:
    with asking({0: [Act("answer", 12.0), Act("answer", 5.0)]}, deadline=10.0) as asked:
        assert asked.play(0) == [(0, 0)]
        asked.drain()
        assert [(*call[:2], call[-1]) for call in asked.outcomes] == [(0, 0, "deadline"), (0, 1, "late")]


def test_it_counts_even_while_the_repetition_waits_for_a_slot() -> None:
    with asking({0: [Act("answer", 12.0)], 1: [Act("answer", 9.0)]}, slots=1, deadline=10.0) as asked:
        assert asked.play(0, 1) == [(0, 0), (1, 0)]
        assert asked.backend.begun == [(0, 0), (1, 0)]
        assert asked.limit.taken == 0
        assert nothing_is_left(asked.clock)


def test_a_task_that_never_answers_fails_by_its_deadlines() -> None:
    with asking({0: [NEVER] * 9}, deadline=10.0, attempts=2) as asked:
        (error,) = asked.play(0)
        assert str(error).endswith("failed 2 times; the last failure: no answer within 10 seconds")
        assert asked.limit.taken == 0


def test_a_failure_after_the_deadline_is_not_a_second_one() -> None:
    with asking({0: [Act("fail", 11.0), Act("answer", 5.0)]}, deadline=10.0, attempts=2) as asked:
        assert asked.play(0) == [(0, 1)]
        assert [call[-1] for call in asked.outcomes] == ["deadline", "answered"]


def test_background_attempts_have_deadlines_too() -> None:
    with asking({0: [NEVER]}, threshold=2.0, deadline=10.0) as asked:
        assert asked.play(0) == [(0, 1)]
        asked.drain()
        assert asked.clock.now() == 10.0
        assert asked.outcomes[-1] == (0, 0, 0.0, 10.0, "deadline")
        assert asked.backend.begun == [(0, 0), (0, 1)]


@pytest.mark.parametrize("kind", CLOCKS)
def test_never_answering_is_survived_in_real_time_too(kind: str) -> None:
    with CLOCKS[kind]() as clock:
        script = {k: [NEVER, Act("fail", 0.001), Act("answer", 0.001)] for k in range(3)}
        # A slow machine may miss deadlines of its own: then more attempts answer late, and none is lost.
        asked = Asked(clock, script, slots=2, deadline=0.05, attempts=50)
        found = clock.run(asked.run(*range(6)))
        assert [interval for interval, _ in found] == list(range(6))
        clock.run(asked.controller.drain())
        assert asked.limit.taken == 0
        assert sorted(call[:2] for call in asked.outcomes) == sorted(asked.backend.begun)


@either_way
def test_drained_is_when_no_attempt_holds_a_slot(deadline: float | None) -> None:
    async def main(clock: VirtualClock, asked: Asked) -> float:
        run = asyncio.ensure_future(asked.run(0))
        await clock.sleep(0.5, ())
        await asked.controller.drain()
        drained = clock.now()
        await run
        return drained

    with VirtualClock() as clock:
        assert clock.run(main(clock, Asked(clock, {}, deadline=deadline))) == 1.0


# Cancelling and closing.


@pytest.mark.parametrize("kind", CLOCKS)
@either_way
def test_cancelling_gives_everything_back(kind: str, deadline: float | None) -> None:
    async def main(asked: Asked) -> None:
        runs = [asyncio.ensure_future(asked.controller.run(task(k))) for k in range(4)]
        while len(asked.backend.begun) < 2:
            await asyncio.sleep(0)
        runs[0].cancel()  # holds a slot
        runs[2].cancel()  # waits for one
        with pytest.raises(asyncio.CancelledError):
            await runs[0]
        await runs[1]
        await runs[3]
        assert runs[2].cancelled()

    with CLOCKS[kind]() as clock:
        script = {0: [NEVER]} | {k: [Act("answer", 0.001)] for k in range(1, 4)}
        asked = Asked(clock, script, slots=2, deadline=deadline)
        clock.run(main(asked))
        clock.run(asked.controller.drain())
        assert asked.limit.taken == 0
        assert asked.backend.cancelled == [(0, 0)]
        assert sorted((call[0], call[-1]) for call in asked.outcomes) == [(0, "late"), (1, "answered"), (3, "answered")]


def test_cancelling_ends_relaunches_and_whatever_waits_for_a_slot() -> None:
    async def main(clock: VirtualClock, asked: Asked) -> None:
        runs = [asyncio.ensure_future(asked.controller.run(task(k))) for k in range(2)]
        await clock.sleep(7.0, ())
        assert asked.backend.begun == [(0, 0), (1, 0), (0, 1)]
        for run in runs:
            run.cancel()
        await asyncio.gather(*runs, return_exceptions=True)
        assert asked.limit.taken == 0

    with asking({k: [NEVER, NEVER] for k in range(2)}, slots=3, threshold=5.0) as asked:
        asked.clock.run(main(asked.clock, asked))
        asked.drain()
        assert asked.backend.cancelled == [(0, 0), (0, 1), (1, 0)]
        assert nothing_is_left(asked.clock)


def test_slots_are_back_before_attempts_have_noticed() -> None:
    taken = []

    async def main(asked: Asked) -> None:
        run = asyncio.ensure_future(asked.controller.run(task(0)))
        run.add_done_callback(lambda _: taken.append(asked.limit.taken))
        while not asked.backend.begun:
            await asyncio.sleep(0)
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)

    with VirtualClock() as clock:
        clock.run(main(Asked(clock, {0: [NEVER]}, deadline=1e6)))
    assert taken == [0]


def test_cancelled_in_the_moment_of_a_failure_it_is_cancelled() -> None:
    async def main(clock: VirtualClock) -> None:
        def on_call(call: Call) -> None:
            asyncio.get_running_loop().call_soon(run.cancel)  # before the task fetches its outcome, known by then

        asked = Asked(clock, {0: [BREAK]}, deadline=1e6, on_call=on_call)
        run = asyncio.ensure_future(asked.controller.run(task(0)))
        with pytest.raises(asyncio.CancelledError):
            await run

    with VirtualClock() as clock:
        clock.run(main(clock))


@pytest.mark.parametrize("kind", CLOCKS)
def test_closing_the_clock_ends_what_is_in_the_background(kind: str) -> None:
    with CLOCKS[kind]() as clock:
        asked = Asked(clock, {0: [NEVER]}, threshold=0.01)
        assert clock.run(asked.run(0)) == [(0, 1)]
        assert asked.limit.taken == 1
    assert asked.limit.taken == 0
    assert asked.backend.cancelled == [(0, 0)]
    assert [(*call[:2], call[-1]) for call in asked.outcomes] == [(0, 1, "answered"), (0, 0, "late")]


@pytest.mark.parametrize("after", [0.0, 0.5, 1.0, 5.0, 5.5, 11.0])
def test_closing_the_clock_in_the_middle_gives_everything_back(after: float) -> None:
    """Whatever stands in a queue, has just begun or has just failed: closing raises nothing and begins nothing."""
    with VirtualClock() as clock:
        script = {0: [NEVER] * 9, 1: [FAIL] * 9, 2: [Act("answer", 7.0)] * 9, 3: [NEVER, FAIL]}
        script |= {5: [Act("throttle", 0.5)] * 99}
        asked = Asked(clock, script, slots=3, threshold=5.0, deadline=10.0)
        runs = clock.spawn(asked.run(*range(6)))
        clock.run(clock.sleep(after, (99,)))
        begun = len(asked.backend.begun)
    assert runs.cancelled()
    assert len(asked.backend.begun) == begun
    assert asked.limit.taken == 0
    assert not asked.limit._queue
    assert len(asked.outcomes) == len({call[:2] for call in asked.outcomes})
    assert {call[:2] for call in asked.outcomes} >= set(asked.backend.begun)


@either_way
def test_what_the_recorder_raises_ends_the_run_but_keeps_no_slot(deadline: float | None) -> None:
    def on_call(call: Call) -> None:
        raise OSError("disk full")

    with asking({}, on_call=on_call, deadline=deadline) as asked:
        with pytest.raises(OSError, match="disk full"):
            asked.clock.run(asked.controller.run(task(0)))
        assert asked.limit.taken == 0


def test_a_task_that_is_answered_is_kept_by_nobody() -> None:
    with asking({}, threshold=5.0, deadline=9.0) as asked:
        one = task(0)
        found = weakref.ref(one)
        gc.disable()
        try:
            asked.clock.run(asked.controller.run(one))
            asked.backend.tasks.clear()
            del one
            assert found() is None
        finally:
            gc.enable()


# Refusals.


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"attempts": 0}, "at least 1 attempt, got 0"),
        ({"relaunches": -1}, "relaunches of a task must be ≥ 0, got -1"),
        ({"deadline": 0.0}, "must be > 0 seconds or None, got 0.0"),
    ],
)
def test_refuses_numbers_that_mean_nothing(options: dict[str, Any], text: str) -> None:
    with VirtualClock() as clock, pytest.raises(ValueError, match=text):
        Asked(clock, {}, **options)


# Whatever happens.

SECONDS = st.sampled_from([0.0, 1.0, 2.0, 3.0, 7.0])
ACTS = st.builds(Act, st.sampled_from(["answer", "answer", "fail", "throttle", "never", "break"]), SECONDS)
SCRIPTS = st.dictionaries(st.integers(0, 5), st.lists(ACTS, max_size=4), max_size=6)
OPTIONS = st.fixed_dictionaries(
    {
        "slots": st.integers(1, 4),
        "threshold": st.sampled_from([None, 1.5, 4.0]),
        "relaunches": st.integers(0, 2),
        "attempts": st.integers(1, 3),
        "deadline": st.sampled_from([2.5, 5.0, 1.0, None]),
    }
)
LIMITS = st.lists(st.tuples(SECONDS, st.integers(1, 4)), max_size=4)
CANCELS = st.dictionaries(st.integers(0, 5), SECONDS, max_size=2)


@given(SCRIPTS, OPTIONS, LIMITS, CANCELS)
def test_every_task_has_one_outcome_and_every_slot_comes_back(
    script: dict[int, list[Act]], options: dict[str, Any], limits: list[tuple[float, int]], cancels: dict[int, float]
) -> None:
    if options["deadline"] is None:  # then what never answers is never noticed
        script = {k: [Act("fail", act.seconds) if act.what == "never" else act for act in script[k]] for k in script}
    first, second = (follow(script, options, limits, cancels) for _ in range(2))
    assert first == second  # to the bit, whatever happened


def follow(
    script: dict[int, list[Act]], options: dict[str, Any], limits: list[tuple[float, int]], cancels: dict[int, float]
) -> list[Any]:
    """Runs six tasks, checks everything that must hold, and gives all that happened."""

    async def change(clock: VirtualClock, limit: SlotLimit) -> None:
        for seconds, slots in limits:
            await clock.sleep(seconds, (-1,))
            limit.set(slots)

    async def cancel(clock: VirtualClock, run: asyncio.Task[TensorResult], seconds: float) -> None:
        await clock.sleep(seconds, (-2,))
        run.cancel()

    async def main(clock: VirtualClock, asked: Asked) -> list[Any]:
        runs = [asyncio.ensure_future(asked.controller.run(task(k))) for k in range(6)]
        others = [change(clock, asked.limit), *(cancel(clock, runs[k], seconds) for k, seconds in cancels.items())]
        _, *found = await asyncio.gather(asyncio.gather(*others), *runs, return_exceptions=True)
        await asked.controller.drain()
        return found

    with asking(script, **options) as asked:
        found = asked.clock.run(main(asked.clock, asked))
        assert nothing_is_left(asked.clock)
    assert asked.limit.taken == 0
    assert not asked.limit._queue
    most = max([options["slots"], *(slots for _, slots in limits)])
    moments = [(call[2], 1) for call in asked.outcomes if call[2] < call[3]]
    moments += [(call[3], -1) for call in asked.outcomes if call[2] < call[3]]
    held = 0
    for _, change_of in sorted(moments):  # at one moment slots are given back before they are taken
        held += change_of
        assert held <= most
    keys = [call[:2] for call in asked.outcomes]
    assert len(keys) == len(set(keys))
    assert set(asked.backend.begun) <= set(keys)
    for k, one in enumerate(found):
        words = [call[-1] for call in asked.outcomes if call[0] == k]
        assert words.count("answered") <= 1
        assert len(words) - words.count("throttled") <= options["attempts"] + options["relaunches"]
        if isinstance(one, TensorResult):
            interval, attempt = one.values
            assert interval == k
            (word,) = [call[-1] for call in asked.outcomes if call[:2] == (k, attempt)]
            assert word in ("answered", "deadline")
        elif isinstance(one, TaskFailedError):
            assert words.count("failed") + words.count("deadline") >= options["attempts"]
            assert "answered" not in words
        elif isinstance(one, asyncio.CancelledError):
            assert k in cancels
        else:
            assert "stage broke" in str(one)
    return [asked.outcomes, asked.backend.begun, [str(one) if isinstance(one, Exception) else "" for one in found]]
