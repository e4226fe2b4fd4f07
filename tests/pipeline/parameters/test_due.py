"""Which gradients a version lacks."""

from __future__ import annotations

from dorylax.pipeline.parameters.due import Due
from dorylax.pipeline.parameters.messages import Update


def update(epoch: int, *pairs: tuple[int, int]) -> Update:
    return Update(1, epoch, {}, 0.0, 1, pairs=pairs)


def test_updates_of_whole_epochs_close_them_for_all() -> None:
    due = Due(3)
    assert due.of(2) == [3, 3]
    due.add(update(3))
    assert due.of(2) == [4, 4]
    assert due.closed == 4


def test_updates_of_single_gradients_are_of_their_intervals() -> None:
    due = Due(0)
    due.add(update(0, (1, 0)))
    due.add(update(1, (1, 1)))
    assert due.of(3) == [0, 2, 0]
    due.add(update(0, (0, 0)))
    due.add(update(0))  # the last of epoch 0
    assert due.of(3) == [1, 2, 1]


def test_it_goes_on_from_what_a_version_had() -> None:
    due = Due(2, {0: 4, 1: 2})
    assert due.of(2) == [4, 2]
    due.add(update(2))
    assert due.of(2) == [4, 3]
