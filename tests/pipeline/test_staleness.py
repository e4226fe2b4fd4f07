from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dorylax.errors import RunError
from dorylax.pipeline.staleness import Ledger


def through(ledger: Ledger, epoch: int, *intervals: int) -> None:
    for interval in intervals:
        ledger.start(interval, epoch)
        ledger.finished(interval, epoch)


def test_nobody_runs_ahead_of_the_epoch_that_fills_the_ghosts() -> None:
    ledger = Ledger(2, 3, first=4)
    through(ledger, 4, 0)
    assert not ledger.may_start(0, 5)
    through(ledger, 4, 1)
    assert ledger.horizon == 8


def test_finishing_is_idempotent_and_skips_nothing() -> None:
    ledger = Ledger(2, 2, first_synchronous=False)
    through(ledger, 0, 0)
    assert not ledger.finished(0, 0)
    with pytest.raises(RunError, match=r"interval 0 cannot have finished epoch 1: .* before 1"):
        ledger.finished(0, 1)
    ledger.start(0, 1)
    ledger.start(0, 2)
    with pytest.raises(RunError, match=r"finished epoch 2: its first unfinished epoch is 1"):
        ledger.finished(0, 2)
    ledger.start(1, 0)
    assert ledger.finished(1, 0)
    assert not ledger.finished(1, 0)
    assert ledger.min_epoch == 1


def test_start_refuses_what_may_not_start() -> None:
    ledger = Ledger(2, 0)
    with pytest.raises(RunError, match="interval 1 must not start epoch 1: its next is 0"):
        ledger.start(1, 1)
    through(ledger, 0, 1)
    with pytest.raises(RunError, match="0 is the newest"):
        ledger.start(1, 1)


def test_a_held_barrier_stays_until_released() -> None:
    ledger = Ledger(2, 3)
    ledger.barrier(1, hold=True)
    assert [ledger.holds(epoch) for epoch in range(3)] == [False, True, False]
    through(ledger, 0, 0)
    assert ledger.common_epoch is None
    through(ledger, 0, 1)
    assert ledger.common_epoch == 1
    assert not ledger.may_start(0, 1)
    ledger.release(1)
    assert not ledger.holds(1)
    assert ledger.may_start(0, 1)
    assert ledger.horizon == 4
    with pytest.raises(RunError, match="epoch 1 is not held: there are holds on none"):
        ledger.release(1)


def test_a_limit_bounds_all_and_makes_nobody_wait_for_others() -> None:
    ledger = Ledger(2, 3, first_synchronous=False)
    ledger.limit(1)
    assert ledger.horizon == 1
    for epoch in (0, 1):
        ledger.start(0, epoch)
    assert not ledger.may_start(0, 2)
    ledger.limit(2)
    ledger.start(0, 2)
    with pytest.raises(RunError, match="cannot go back from epoch 2 to epoch 1"):
        ledger.limit(1)
    ledger.limit(9)
    assert ledger.horizon == 3


def test_a_barrier_that_comes_too_late_is_refused() -> None:
    ledger = Ledger(2, 1, first_synchronous=False)
    ledger.start(0, 0)
    ledger.start(0, 1)
    with pytest.raises(RunError, match="before epoch 1 comes too late: epoch 1 was started; 2 is the first"):
        ledger.barrier(1)


def test_close_before_anything_started() -> None:
    ledger = Ledger(2, 2, first=7)
    assert ledger.common_epoch == 7
    assert ledger.drain() == 7
    assert not ledger.may_start(0, 7)


def test_synchronise_ends_staleness_behind_a_barrier() -> None:
    ledger = Ledger(2, 2, first_synchronous=False)
    through(ledger, 0, 0)
    through(ledger, 1, 0)
    assert not ledger.switched
    assert ledger.synchronise() == 2
    assert ledger.synchronise() == 2
    assert ledger.switched
    assert ledger.horizon == 1  # up to the switch intervals may be apart
    assert not ledger.may_start(0, 2)
    assert ledger.may_start(1, 0)
    through(ledger, 0, 1)
    assert ledger.may_start(1, 1)
    through(ledger, 1, 1)
    through(ledger, 2, 0)
    assert not ledger.may_start(0, 3)
    assert [ledger.allowance.synchronous(epoch) for epoch in range(4)] == [False, False, True, True]
    assert ledger.allowance.required_row_epoch(1) == -1
    assert ledger.allowance.required_row_epoch(2) == 2


@pytest.mark.parametrize(
    ("options", "epochs", "required"),
    [
        ({}, range(5), [0, 0, 0, 1, 2]),
        ({"first": 3}, range(3, 7), [3, 3, 3, 4]),
        ({"first": 3, "first_synchronous": False}, range(3, 7), [2, 2, 3, 4]),
        ({"synchronous": True}, range(3), [0, 1, 2]),
        ({"synchronous": True, "first": 3, "first_synchronous": False}, range(3, 5), [3, 4]),
    ],
)
def test_required_row_epoch(options: dict[str, Any], epochs: range, required: list[int]) -> None:
    """With S = 1: the epoch itself where synchronous, e - 2 elsewhere, never before the first rows."""
    ledger = Ledger(2, 1, **options)
    assert [ledger.allowance.required_row_epoch(epoch) for epoch in epochs] == required
    assert ledger.allowance.required_row_epoch(-1) == -1  # what is computed once, whatever comes after it


@pytest.mark.parametrize(("intervals", "staleness", "named"), [(0, 0, "num_intervals"), (1, -1, "staleness")])
def test_bad_numbers_are_refused(intervals: int, staleness: int, named: str) -> None:
    with pytest.raises(ValueError, match=rf"{named} must be ≥ \d, got {min(intervals, staleness)}"):
        Ledger(intervals, staleness)


class Schedule(RuleBasedStateMachine):
    """Any interval starts and finishes when it may; barriers, holds, closing and the switch come at any time."""

    @initialize(
        count=st.integers(1, 5), staleness=st.integers(0, 3), first=st.integers(0, 2), synchronous_first=st.booleans()
    )
    def begin(self, count: int, staleness: int, first: int, synchronous_first: bool) -> None:
        self.ledger = Ledger(count, staleness, first=first, first_synchronous=synchronous_first)
        self.first, self.held, self.barriers = first, set[int](), set[int]()
        self.next, self.done = [first] * count, [first] * count
        self.synchronous_from: int | None = None
        self.filling = synchronous_first

    @rule(interval=st.integers(0, 4))
    def start(self, interval: int) -> None:
        interval %= len(self.next)
        epoch, slowest = self.next[interval], min(self.done)
        synchronous = self.synchronous_from is not None and epoch >= self.synchronous_from
        allowed = epoch <= slowest + (0 if synchronous else self.ledger.staleness)
        allowed &= not (self.filling and slowest == self.first) or epoch == self.first
        allowed &= all(slowest >= barrier for barrier in self.barriers if epoch >= barrier)
        allowed &= all(epoch < barrier for barrier in self.held)
        assert self.ledger.may_start(interval, epoch) == allowed
        if allowed:
            self.ledger.start(interval, epoch)
            self.next[interval] += 1

    @rule(interval=st.integers(0, 4))
    def finish(self, interval: int) -> None:
        interval %= len(self.next)
        epoch = self.done[interval]
        if epoch < self.next[interval]:
            before = min(self.done)
            self.done[interval] += 1
            assert self.ledger.finished(interval, epoch) == (min(self.done) > before)

    @rule(interval=st.integers(0, 4), back=st.integers(1, 3))
    def repeat(self, interval: int, back: int) -> None:
        interval %= len(self.next)
        assert not self.ledger.finished(interval, self.done[interval] - back)

    @rule(ahead=st.integers(1, 3), hold=st.booleans())
    def barrier(self, ahead: int, hold: bool) -> None:
        epoch = max(self.next) - 1 + ahead
        self.ledger.barrier(epoch, hold=hold)
        self.barriers.add(epoch)
        if hold:
            self.held.add(epoch)

    @precondition(lambda self: self.held)
    @rule()
    def release(self) -> None:
        epoch = min(self.held)
        self.ledger.release(epoch)
        self.held.remove(epoch)

    @rule()
    def close(self) -> None:
        epoch = self.ledger.drain()
        assert epoch == max(self.next)
        self.held.add(epoch)
        self.barriers.add(epoch)

    @rule()
    def synchronise(self) -> None:
        epoch = self.ledger.synchronise()
        if self.synchronous_from is None:
            self.synchronous_from = max(self.next)
            self.barriers.add(epoch)
        assert epoch == self.synchronous_from

    @invariant()
    def somebody_can_go_on(self) -> None:
        in_progress = any(done < following for done, following in zip(self.done, self.next, strict=True))
        startable = any(self.ledger.may_start(interval, epoch) for interval, epoch in enumerate(self.next))
        assert in_progress or startable or min(self.held) == min(self.done)

    @invariant()
    def the_bound_holds(self) -> None:
        slowest = min(self.done)
        assert self.ledger.min_epoch == slowest
        assert max(self.next) - 1 <= slowest + self.ledger.staleness
        assert self.ledger.newest_started == max(self.next) - 1
        assert self.ledger.horizon >= self.ledger.newest_started
        standing = {*self.next, *self.done}
        assert self.ledger.common_epoch == (standing.pop() if len(standing) == 1 else None)


TestSchedule = Schedule.TestCase
