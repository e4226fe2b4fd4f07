"""The limit that follows refusals: what one refusal changes, and how it recovers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylax.serverless.controller import Throttle
from dorylax.serverless.task import TaskKey

KEY = TaskKey(0, 0, 3, 0)


def refuse(throttle: Throttle, at: float = 0.0, running: int = 99, key: TaskKey = KEY) -> float | None:
    """A call that began a moment before."""
    return throttle.refused(key, at, at, running)


def test_nothing_is_limited_until_something_is_refused() -> None:
    throttle = Throttle()
    assert throttle.limit is None
    assert not throttle.taken(0.0, 100)
    assert throttle.limit is None
    assert not throttle.hopeless(1e9, 0)


def test_a_refusal_pauses_and_leaves_seven_tenths() -> None:
    throttle = Throttle(first=0.2)
    seconds = refuse(throttle, running=99)
    assert 0.1 <= seconds <= 0.2
    assert throttle.limit == 0
    throttle.resume(seconds)
    assert throttle.limit == 70


def test_a_burst_that_is_refused_counts_once() -> None:
    throttle = Throttle()
    refuse(throttle, 1.0)
    assert refuse(throttle, 1.0) is None
    throttle.resume(1.5)
    assert throttle.refused(KEY, 1.0, 2.0, 10) is None  # began before the pause
    assert throttle.limit == 70
    assert refuse(throttle, 2.0, running=69) is not None
    throttle.resume(3.0)
    assert throttle.limit == 49


def test_at_least_one_call_may_run() -> None:
    throttle = Throttle()
    refuse(throttle, running=0)
    throttle.resume(1.0)
    assert throttle.limit == 1


def test_pauses_double_until_a_call_is_taken() -> None:
    throttle, now = Throttle(first=1.0, longest=5.0), 0.0
    longest = []
    for _ in range(4):
        seconds = refuse(throttle, now)
        longest.append(seconds)
        throttle.resume(now := now + seconds)
    for seconds, most in zip(longest, (1.0, 2.0, 4.0, 5.0), strict=True):
        assert most / 2 <= seconds <= most
    throttle.taken(now, 100)
    assert (refuse(throttle, now) or 9.0) <= 1.0


def test_what_began_before_the_pause_says_nothing_of_the_time_after_it() -> None:
    throttle = Throttle()
    refuse(throttle, 1.0, running=0)
    assert not throttle.taken(1.0, 100)
    throttle.resume(2.0)
    assert not throttle.taken(1.0, 100)
    assert throttle.limit == 1
    assert throttle.taken(2.0, 100)


def test_it_grows_by_a_sixteenth_of_the_slots_with_each_round_and_is_lifted_at_the_end() -> None:
    throttle = Throttle()
    refuse(throttle, running=99)
    throttle.resume(1.0)
    limits: list[int | None] = [70]
    for _ in range(70 + 78 + 86 + 94):
        if throttle.taken(1.0, 128):
            limits.append(throttle.limit)
    assert limits == [70, 78, 86, 94, 102]
    while throttle.limit is not None:
        throttle.taken(1.0, 128)
    refuse(throttle, 2.0, running=127)  # and it begins anew
    throttle.resume(3.0)
    assert throttle.limit == 89


def test_few_slots_grow_too() -> None:
    throttle = Throttle()
    refuse(throttle, running=1)
    throttle.resume(1.0)
    assert throttle.taken(1.0, 3)
    assert throttle.limit == 2
    assert not throttle.taken(1.0, 3)
    assert throttle.taken(1.0, 3)
    assert throttle.limit is None


def test_without_hope_after_its_patience_of_nothing_but_refusals() -> None:
    throttle = Throttle(patience=10.0)
    for now in (5.0, 9.0, 14.9):
        refuse(throttle, now)
        throttle.resume(now)
    assert not throttle.hopeless(14.9, 0)
    assert throttle.hopeless(15.0, 0)
    assert not throttle.hopeless(15.0, 1)  # which may be the one that takes the place
    throttle.taken(15.0, 100)
    assert not throttle.hopeless(99.0, 0)
    refuse(throttle, 99.0)
    assert not throttle.hopeless(108.9, 0)


def test_recovered_it_has_forgotten_late_refusals() -> None:
    """A call of before the pause whose refusal comes when the limit is lifted begins no patience."""
    throttle = Throttle(patience=10.0)
    refuse(throttle, 1.0, running=0)
    throttle.resume(2.0)
    while throttle.limit is not None:
        throttle.taken(2.0, 2)
    assert throttle.refused(KEY, 0.5, 3.0, 0) is None
    assert not throttle.hopeless(1000.0, 0)


def test_waits_are_of_the_task_and_repeat() -> None:
    waits = [refuse(Throttle(), key=TaskKey(0, interval, 3, 0)) for interval in range(20)]
    assert len(set(waits)) == 20
    assert waits == [refuse(Throttle(), key=TaskKey(0, interval, 3, 0)) for interval in range(20)]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"first": 0.0}, "0 < first ≤ longest"),
        ({"first": 2.0, "longest": 1.0}, "got 2.0 and 1.0"),
        ({"patience": 0.0}, "patience of a throttle must be > 0"),
    ],
)
def test_refuses_numbers_that_mean_nothing(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Throttle(**options)


@given(st.lists(st.tuples(st.sampled_from(["refused", "taken", "resume"]), st.integers(0, 40)), max_size=60))
def test_whatever_happens_the_limit_is_one_that_calls_can_live_with(events: list[tuple[str, int]]) -> None:
    throttle, paused = Throttle(), False
    for now, (what, number) in enumerate(events):
        if what == "refused":
            paused |= throttle.refused(KEY, float(now - number % 3), float(now), number) is not None
        elif what == "taken":
            throttle.taken(float(now - number % 3), 20)
        elif paused:
            throttle.resume(float(now))
            paused = False
        assert throttle.limit == 0 if paused else throttle.limit is None or 1 <= throttle.limit <= 41


def test_pauses_double_from_a_fifth_of_a_second_to_twenty() -> None:
    throttle, now, pauses = Throttle(), 0.0, []
    for number in range(2000):
        pauses.append(throttle.refused(TaskKey(0, number, 0, 0), now, now, 8) or 0.0)
        now += pauses[-1]
        throttle.resume(now)
    for number, pause in enumerate(pauses):
        longest = min(20.0, 0.2 * 2 ** min(number, 9))
        assert longest / 2 <= pause <= longest
    assert max(pauses) > 19.5  # all that is allowed is used
    assert throttle.patience == 300.0
