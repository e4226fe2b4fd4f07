"""The contract of executors of a sweep's runs."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from dorylax.experiments.outcome import RunOutcome
from dorylax.experiments.runner import RunOptions
from dorylax.experiments.sweep import Run
from dorylax.experiments.watcher import Watcher


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
