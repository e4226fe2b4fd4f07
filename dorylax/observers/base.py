"""What may watch a run: progress bars, metrics files, a user's own. The trainer itself prints nothing."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from dorylax.runs.result import EpochRecord, TrainResult


@runtime_checkable
class Observer(Protocol):
    """Called from the thread that trains, between epochs, outside all reported times. An exception ends the run."""

    def started(self, total_epochs: int, first_epoch: int) -> None:
        """Before the first epoch: how many epochs there will be at most, and which is next (0 unless resumed)."""

    def epoch(self, record: EpochRecord) -> None:
        """After each epoch, once it is evaluated (if it is)."""

    def finished(self, result: TrainResult) -> None:
        """After the last epoch. Not called when the run ends by an exception."""
