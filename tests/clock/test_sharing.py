from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylax.clock.sharing import Sharing, Speeds

CAPACITY = 12.0


def equally(counts: Sequence[int]) -> list[float]:
    """All of the capacity to all jobs, whatever their kind."""
    return [CAPACITY / max(1, sum(counts))] * len(counts)


def capped(counts: Sequence[int]) -> list[float]:
    """Jobs of kind 1 get 2 at most, those of kind 0 what is left."""
    share = CAPACITY / max(1, sum(counts))
    slow = min(2.0, share)
    return [(CAPACITY - counts[1] * slow) / max(1, counts[0]), slow]


def served(speeds: Speeds, arrivals: Sequence[tuple[float, float, int]], kinds: int) -> dict[int, float]:
    """When each (time, amount, kind) is done; arrivals in order of time."""
    sharing, jobs, ends = Sharing(speeds, kinds), {}, {}
    waiting = list(enumerate(arrivals))
    while waiting or sharing.next() is not None:
        due = sharing.next()
        if waiting and (due is None or waiting[0][1][0] <= due[0]):
            number, (when, amount, kind) = waiting.pop(0)
            jobs[sharing.add(when, amount, kind, (number,))] = number
            continue
        assert due is not None
        ends[jobs[sharing.finish()]] = due[0]
    return ends


def replayed(speeds: Speeds, arrivals: Sequence[tuple[float, float, int]], kinds: int) -> dict[int, Fraction]:
    """The same by its definition, in fractions: all that is left, of every job, from event to event."""
    left: dict[int, Fraction] = {}
    waiting, ends, now = list(enumerate(arrivals)), {}, Fraction(0)
    while waiting or left:
        counts = [sum(arrivals[number][2] == kind for number in left) for kind in range(kinds)]
        rates = {number: Fraction(speeds(counts)[arrivals[number][2]]) for number in left}
        steps = [left[number] / rates[number] for number in left]
        if waiting:
            steps.append(Fraction(waiting[0][1][0]) - now)
        step = min(steps)
        now += step
        left = {number: amount - step * rates[number] for number, amount in left.items()}
        for number in [number for number, amount in left.items() if amount == 0]:
            del left[number]
            ends[number] = now
        while waiting and waiting[0][1][0] <= now:
            number, (_, amount, _) = waiting.pop(0)
            left[number] = Fraction(amount)
    return ends


# Numbers that are exact in binary, so that jobs which should be done together are.
ARRIVALS = st.lists(
    st.tuples(st.integers(0, 64).map(lambda k: k / 8), st.integers(1, 200).map(lambda k: k / 4), st.integers(0, 1)),
    min_size=1,
    max_size=12,
).map(lambda found: sorted(found, key=lambda one: one[0]))


def test_who_comes_later_slows_down_who_is_there():
    """By hand: the first is served 24 of its 48 alone; then both get 6 a second, and the second has 36 left at 6."""
    assert served(equally, [(0.0, 48.0, 0), (2.0, 60.0, 0)], 1) == {0: 6.0, 1: 9.0}


def test_what_one_kind_cannot_use_is_left_to_the_other():
    """Two jobs of 2 a second at most leave 8 to the third."""
    assert served(capped, [(0.0, 16.0, 0), (0.0, 8.0, 1), (0.0, 8.0, 1)], 2) == {0: 2.0, 1: 4.0, 2: 4.0}


@pytest.mark.parametrize("speeds", [equally, capped])
@given(arrivals=ARRIVALS)
def test_it_is_what_its_definition_says(*, speeds, arrivals):
    found, expected = served(speeds, arrivals, 2), replayed(speeds, arrivals, 2)
    assert found == pytest.approx({number: float(end) for number, end in expected.items()}, rel=1e-9, abs=1e-9)


def test_who_gives_up_leaves_its_share():
    sharing = Sharing(equally)
    first, second = (sharing.add(0.0, 24.0, 0, (k,)) for k in range(2))
    assert sharing.next() == (4.0, (0,))
    assert sharing.remove(2.0, first)  # both have been served 12
    assert sharing.next() == (3.0, (1,))
    assert not sharing.remove(2.5, first)
    assert sharing.next() == (3.0, (1,))
    assert sharing.finish() is second
    assert sharing.next() is None
    assert not sharing.remove(3.0, second)


@given(amounts=st.lists(st.integers(1, 50), min_size=2, max_size=10), data=st.data())
def test_whoever_gives_up_the_others_end_in_their_order(amounts, data):
    """At one speed each, so that only what they ask for says when they are done."""
    sharing = Sharing(lambda _: (1.0,))
    jobs = [sharing.add(0.0, float(amount), 0, (k,)) for k, amount in enumerate(amounts)]
    gone = data.draw(st.sets(st.integers(0, len(jobs) - 1)))
    for k in gone:
        assert sharing.remove(0.0, jobs[k])
    ends = []
    while (due := sharing.next()) is not None:
        ends.append(due)
        sharing.finish()
    assert ends == sorted((float(amount), (k,)) for k, amount in enumerate(amounts) if k not in gone)


def test_at_one_time_the_smaller_order_goes_first():
    sharing = Sharing(equally, 2)
    jobs = [sharing.add(0.0, 6.0, kind, order) for kind, order in ((0, (2,)), (1, (0, 7)), (0, (0, 9)))]
    assert [sharing.finish() for _ in jobs] == [jobs[1], jobs[2], jobs[0]]


def test_a_long_run_loses_no_digits():
    sharing = Sharing(equally)
    for k in range(1000):
        sharing.add(1e9 * k, 3.0, 0, ())
        when = sharing.next()
        assert when is not None
        assert when[0] - 1e9 * k == pytest.approx(0.25, abs=1e-3)  # the clock's own digits
        sharing.finish()


@pytest.mark.parametrize("give_up", [False, True])
def test_who_begins_when_nobody_is_left_knows_nothing_of_those_before(give_up):
    """Two had come so far that 3 more would be lost in the digits."""
    sharing = Sharing(lambda counts: (1e17 if counts[0] == 2 else 1.0,))
    jobs = [sharing.add(0.0, 2e17 if give_up else 1e17, 0, (k,)) for k in range(2)]
    for job in jobs:
        if give_up:
            assert sharing.remove(1.0, job)
        else:
            sharing.finish()
    sharing.add(1.0, 3.0, 0, ())
    assert sharing.next() == (4.0, ())


@pytest.mark.parametrize("amount", [0.0, -1.0, float("inf"), float("nan")])
def test_no_amount_is_refused(amount: Any) -> None:
    with pytest.raises(ValueError, match="an amount must be finite and > 0, got"):
        Sharing(equally).add(0.0, amount, 0, ())
