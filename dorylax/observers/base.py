"""Contract of observers, such as progress bars, metrics files, or the user's; the trainer itself prints nothing."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from dorylax.runs.result import EpochRecord, TrainResult


@runtime_checkable
class Observer(Protocol):
    """Called from the training thread, between epochs, outside all reported times. An exception ends the run."""

    def started(self, total_epochs: int, first_epoch: int) -> None:
        """Receive the maximum number of epochs and the next epoch (0 unless resumed), before the first epoch."""

    def epoch(self, record: EpochRecord) -> None:
        """Receive the record of an epoch, after its evaluation, if any."""

    def finished(self, result: TrainResult) -> None:
        """Receive the result after the last epoch; not called if the run ends by an exception."""
