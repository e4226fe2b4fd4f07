"""The contract of observers of a sweep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, final, runtime_checkable

from dorylax.experiments.outcome import RunOutcome
from dorylax.experiments.sweep import Run

if TYPE_CHECKING:
    from dorylax.runs.result import EpochRecord, TrainResult


@runtime_checkable
class Watcher(Protocol):
    """Receives the events of runs; several may be under way at once."""

    def begins(self, run: Run) -> None:
        """A run loads its data and compiles."""

    def started(self, run: Run, total_epochs: int, first_epoch: int) -> None:
        """It begins to train."""

    def epoch(self, run: Run, record: EpochRecord) -> None:
        """It has trained an epoch. Runs on other machines leave some out."""

    def again(self, run: Run, why: str) -> None:
        """Its process was lost, and it runs again from its last snapshot; `why` is a clause."""

    def finished(self, run: Run, summary: Mapping[str, Any]) -> None:
        """It has come to its end or to a signal; `summary` is the content of summary.json."""

    def ends(self, outcome: RunOutcome) -> None:
        """Its outcome is on disk; not called if Ctrl-C ends the sweep."""


@final
class RunObserver:
    """An observer of the trainer that tells a watcher the run."""

    def __init__(self, watcher: Watcher, run: Run) -> None:
        self._watcher, self._run = watcher, run

    def started(self, total_epochs: int, first_epoch: int) -> None:
        """See `dorylax.observers.base.Observer`."""
        self._watcher.started(self._run, total_epochs, first_epoch)

    def epoch(self, record: EpochRecord) -> None:
        """See `dorylax.observers.base.Observer`."""
        self._watcher.epoch(self._run, record)

    def finished(self, result: TrainResult) -> None:
        """See `dorylax.observers.base.Observer`."""
        self._watcher.finished(self._run, result.summary())
