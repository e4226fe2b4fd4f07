"""What is told of a sweep while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, final, runtime_checkable

from dorylax.experiments.outcome import RunOutcome
from dorylax.experiments.sweep import Run

if TYPE_CHECKING:
    from dorylax.runs.result import EpochRecord, TrainResult


@runtime_checkable
class Watcher(Protocol):
    """What is told about runs; several may be under way at once."""

    def begins(self, run: Run) -> None:
        """A run is next; it loads its data and compiles."""

    def started(self, run: Run, total_epochs: int, first_epoch: int) -> None:
        """It begins to train."""

    def epoch(self, run: Run, record: EpochRecord) -> None:
        """It has trained an epoch. Not every one is told of runs on other machines."""

    def again(self, run: Run, why: str) -> None:
        """What ran it was lost, and it is run again, from what was saved; `why` is half a sentence."""

    def finished(self, run: Run, summary: Mapping[str, Any]) -> None:
        """It has trained to its end, or a signal has stopped it; `summary` is as in summary.json."""

    def ends(self, outcome: RunOutcome) -> None:
        """What has become of it, once that is on disk; not called where Ctrl-C ends the sweep."""


@final
class RunObserver:
    """An observer of the trainer that tells a watcher which run it is."""

    def __init__(self, watcher: Watcher, run: Run) -> None:
        self._watcher, self._run = watcher, run

    def started(self, total_epochs: int, first_epoch: int) -> None:
        """See `dorylax.observers.base.Observer`."""
        self._watcher.started(self._run, total_epochs, first_epoch)

    def epoch(self, record: EpochRecord) -> None:
        """Likewise."""
        self._watcher.epoch(self._run, record)

    def finished(self, result: TrainResult) -> None:
        """Likewise."""
        self._watcher.finished(self._run, result.summary())
