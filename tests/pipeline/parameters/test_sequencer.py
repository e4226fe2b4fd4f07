from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylax.pipeline.parameters.records import Applied, Step
from dorylax.pipeline.parameters.sequencer import Numbered, Sequencer

EPOCHS = 3


def arrived(interval: int, epoch: int) -> Step:
    return Step.of(interval, epoch, (np.float32(interval), 1.0 + interval, (interval, epoch)))


@given(
    st.integers(1, 4),
    st.sampled_from(["per_epoch", "per_interval"]),
    st.integers(1, 5),
    st.none() | st.integers(0, EPOCHS),
    st.randoms(use_true_random=False),
)
def test_any_order_and_any_repetition(
    count: int, update: str, sync_every: int, switch: int | None, random: Any
) -> None:
    sequencer = Sequencer(count, update, sync_every=sync_every, first=2, version=10)
    if switch is not None:
        sequencer.switch(2 + switch)
    messages = [arrived(k, 2 + epoch) for k in range(count) for epoch in range(EPOCHS)] * 2
    random.shuffle(messages)
    numbered: list[Numbered] = []
    told: list[Applied] = []
    unconfirmed: list[int] = []
    for message in messages:
        new = updates(sequencer.add(message))
        numbered += new
        unconfirmed += [step.number for step, _ in new]
        while unconfirmed and random.random() < 0.5:
            told += sequencer.confirm(unconfirmed.pop(random.randrange(len(unconfirmed))))
    random.shuffle(unconfirmed)
    for number in unconfirmed:
        told += sequencer.confirm(number)

    numbers = [step.number for step, _ in numbered]
    assert numbers == list(range(11, 11 + len(numbered)))
    assert [each.version for each in told] == numbers
    pairs = [pair for each in told for pair in each.pairs]
    assert sorted(pairs) == [(k, 2 + epoch) for k in range(count) for epoch in range(EPOCHS)]
    for k in range(count):
        epochs = [epoch for interval, epoch in pairs if interval == k]
        assert epochs == sorted(epochs)

    assert [step.number for _, forward in numbered for step in forward] == numbers
    assert all(forward[-1] is step for step, forward in numbered if forward)
    assert all(len(forward) <= sync_every for _, forward in numbered)
    seen: list[tuple[int, int]] = []
    for (step, forward), applied in zip(numbered, told, strict=True):
        seen += applied.pairs
        epoch = applied.pairs[-1][1]
        closes = sum(other == epoch for _, other in seen) == count
        assert step.closes == closes
        assert forward or not closes
        per_epoch = update == "per_epoch" or (switch is not None and epoch >= 2 + switch)
        assert step.factor == (1 if per_epoch else count)
        assert len(applied.pairs) == (count if per_epoch else 1)
        assert step.loss == sum(1.0 + k for k, _ in applied.pairs)
        assert step.epoch == epoch
        assert step.statistics == applied.pairs[0]  # of the first in order, whoever came first
    assert sequencer.pending == 0


def updates(found: Sequence[Numbered | Applied]) -> list[Numbered]:
    """What was found, without late gradients, of which there must be none."""
    assert not any(isinstance(each, Applied) for each in found)
    return [each for each in found if not isinstance(each, Applied)]


@given(
    st.integers(2, 4),
    st.sampled_from([0.3, 0.6, 0.9]),
    st.none() | st.integers(0, EPOCHS),
    st.randoms(use_true_random=False),
)
def test_late_gradients_are_told_of_once_and_after_what_they_are_late_for(
    count: int, share: float, switch: int | None, random: Any
) -> None:
    sequencer = Sequencer(count, "per_epoch", gradient_share=share, first=2, version=10)
    if switch is not None:
        sequencer.switch(2 + switch)
    messages = [arrived(k, 2 + epoch) for k in range(count) for epoch in range(EPOCHS)] * 2
    random.shuffle(messages)
    unconfirmed: list[int] = []
    confirmed, pairs = {10}, []

    def hear(told: Applied) -> None:
        assert told.version in confirmed
        assert max(epoch for _, epoch in told.pairs) <= told.version - 11 + 2
        assert told.losses == tuple(1.0 + k for k, _ in told.pairs)
        pairs.extend(told.pairs)

    def confirm() -> None:
        number = unconfirmed.pop(0)
        confirmed.add(number)
        for told in sequencer.confirm(number):
            hear(told)

    for message in messages:
        for found in sequencer.add(message):
            if isinstance(found, Applied):
                hear(found)
            else:
                step, forward = found
                assert step.closes
                assert forward == (step,)
                unconfirmed.append(step.number)
        while unconfirmed and random.random() < 0.5:
            confirm()
    while unconfirmed:
        confirm()
    assert sorted(pairs) == [(k, 2 + epoch) for k in range(count) for epoch in range(EPOCHS)]
    assert sequencer.pending == 0


def test_a_late_gradient_is_told_of_at_once_where_its_step_is() -> None:
    sequencer = Sequencer(2, "per_epoch", gradient_share=0.5)
    sequencer.add(arrived(0, 0))
    sequencer.add(arrived(1, 0))
    sequencer.add(arrived(0, 1))
    sequencer.confirm(1)
    assert sequencer.add(arrived(1, 1)) == []
    assert sequencer.confirm(2) == [Applied(2, ((0, 1), (1, 1)), (1.0, 2.0))]
    sequencer.add(arrived(0, 2))
    sequencer.confirm(3)
    assert sequencer.add(arrived(1, 2)) == [Applied(3, ((1, 2),), (2.0,))]
    sequencer.forget()
    assert sequencer.add(arrived(0, 3)) == []
    assert sequencer.pending == 1


def test_the_epochs_of_an_interval_go_in_order() -> None:
    sequencer = Sequencer(2, "per_interval")
    assert sequencer.add(arrived(0, 1)) == []
    assert sequencer.pending == 1
    first, second = updates(sequencer.add(arrived(0, 0)))
    assert sequencer.confirm(second[0].number) == []
    told = sequencer.confirm(first[0].number)
    assert [applied.pairs for applied in told] == [((0, 0),), ((0, 1),)]


def test_pending_counts_what_is_on_its_way() -> None:
    sequencer = Sequencer(2, "per_interval", sync_every=2)
    (numbered,) = updates(sequencer.add(arrived(0, 0)))
    assert numbered[1] == ()
    assert sequencer.pending == 2  # neither sent nor applied
    sequencer.confirm(1)
    assert sequencer.pending == 1
    per_epoch = Sequencer(2, "per_epoch")
    per_epoch.add(arrived(0, 0))
    assert per_epoch.pending == 1


def test_a_switch_that_comes_too_late_is_refused() -> None:
    sequencer = Sequencer(2, "per_interval")
    sequencer.add(arrived(0, 0))
    sequencer.add(arrived(0, 2))
    with pytest.raises(ValueError, match="per_epoch from epoch 2 on: gradients of epoch 2 have come"):
        sequencer.switch(2)
    sequencer.switch(3)
    sequencer.switch(0)  # it is switched: no matter
