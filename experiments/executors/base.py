"""The contracts of executors, which run the runs of a sweep, and of the watchers that they tell."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, final, runtime_checkable

from dorylax.experiments.runner import RunOptions
from dorylax.experiments.sweep import Run, RunOutcome

if TYPE_CHECKING:
    from dorylax.runs.result import EpochRecord, TrainResult


@runtime_checkable
class Watcher(Protocol):
    """Receives the events of runs; several runs may be under way."""

    def begins(self, run: Run) -> None:
        """A run loads its data and compiles."""

    def started(self, run: Run, total_epochs: int, first_epoch: int) -> None:
        """The run begins to train."""

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
    """An observer of the trainer that passes events on, each by the name of a watcher's method and its arguments."""

    def __init__(self, say: Callable[..., None]) -> None:
        self._say = say

    def started(self, total_epochs: int, first_epoch: int) -> None:
        """See `dorylax.observers.base.Observer`."""
        self._say("started", total_epochs, first_epoch)

    def epoch(self, record: EpochRecord) -> None:
        """See `dorylax.observers.base.Observer`."""
        self._say("epoch", record)

    def finished(self, result: TrainResult) -> None:
        """See `dorylax.observers.base.Observer`."""
        self._say("finished", result.summary())


@runtime_checkable
class Executor(Protocol):
    """Runs runs. All executors leave the same folder, with the same results byte for byte."""

    def execute(
        self, runs: Sequence[Run], folder: Path | None, watcher: Watcher, options: RunOptions
    ) -> Generator[RunOutcome, None, None]:
        """Run runs. If it is closed early, running runs stop with a checkpoint, as on a signal.

        Args:
            runs: The runs to do.
            folder: Folder of the sweep, which this process has locked; None to write nothing.
            watcher: Receives events, in this process.
            options: Options of all runs.

        Yields:
            The outcome of each run once it is in the folder, in the order in which they end; "open" is the last, if a signal
            has stopped a run.

        Raises:
            OSError: A run has failed, and the file system refuses to record the reason.
        """
        ...
