"""The contract of what runs the runs of a sweep."""

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
    """Runs runs, wherever that is. All leave the same folder, and the same results byte for byte."""

    def execute(
        self, runs: Sequence[Run], folder: Path | None, watcher: Watcher, options: RunOptions
    ) -> Generator[RunOutcome, None, None]:
        """Runs them; closed before its end, it stops what runs as a signal stops a single run, with a checkpoint.

        Args:
            runs: what is to be done.
            folder: of the sweep, which this process holds; None to leave nothing.
            watcher: told of what happens, in this process.
            options: what holds for all runs.

        Yields:
            What has become of each run, once it is in the folder, in the order in which they end; "open" once a signal has
            stopped a run, and then no more.

        Raises:
            OSError: a run has failed, and the file system refuses to record why.
        """
        ...
