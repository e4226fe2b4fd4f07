"""Executes a sweep: the contract of executors, and the loop that keeps the sweep's tables up to date.

An executor (`executors`) runs the open runs of a sweep. A watcher receives their events.
"""

from __future__ import annotations

import contextlib
import functools
import statistics
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, final, runtime_checkable

from dorylax.experiments.runner import USUAL, RunOptions, clear_errors, directory, error_file, inspect
from dorylax.experiments.sweep import Run, RunOutcome, Sweep
from dorylax.experiments.table import write_tables
from dorylax.signals import Terminated, terminations
from dorylax.trainer.saving.places import lost_newest

if TYPE_CHECKING:
    from dorylax.runs.result import EpochRecord

Stopped: TypeAlias = Literal["interrupted", "terminated"]
"""By Ctrl-C, or by SIGTERM."""


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
        self.started = functools.partial(say, "started")
        self.epoch = functools.partial(say, "epoch")
        self.finished = lambda result: say("finished", result.summary())


@runtime_checkable
class Executor(Protocol):
    """Runs runs. All executors leave the same folder, with the same results byte for byte."""

    def execute(
        self, runs: Sequence[Run], folder: Path | None, watcher: Watcher, options: RunOptions
    ) -> Generator[RunOutcome, None, None]:
        """Run runs in a folder that this process has locked, or in None to write nothing. Events come in this process.

        If the generator is closed early, running runs stop with a checkpoint, as on a signal.

        Args:
            runs: Runs to execute.
            folder: The sweep's folder, or None to write nothing.
            watcher: Receives the events of the runs.
            options: Options of all runs.

        Yields:
            The outcome of each run once it is in the folder, in the order in which they end; "open" is the last, if a signal
            has stopped a run.

        Raises:
            OSError: A run has failed, and the file system refuses to record the reason.
        """
        ...


def known_outcomes(sweep: Sweep, folder: Path | None) -> dict[str, RunOutcome]:
    """The outcomes of a sweep's runs by key, as their directories tell; without a folder all are open.

    A finished run whose newest checkpoint is lost is open again, and continues from the checkpoint before.
    """
    if folder is None:
        return {run.key: RunOutcome(run, "open") for run in sweep.runs}
    found = {run.key: inspect(folder, run) for run in sweep.runs}
    for key, one in found.items():
        epochs, checkpoints = one.summary.get("epochs"), one.run.config.train.checkpoints
        if epochs is not None and lost_newest(directory(folder, one.run), checkpoints, epochs):  # a trained one
            found[key] = RunOutcome(one.run, "open")
    return found


def expected_seconds(outcomes: Collection[RunOutcome]) -> dict[str, float]:
    """Return the expected wall seconds of each run by key; empty while no run is done.

    A run takes the median of completed runs of its setting, else of all.
    """
    took: dict[str, list[float]] = {}
    for outcome in outcomes:
        seconds = (outcome.summary.get("timings") or {}).get("wall")
        if outcome.status == "done" and seconds is not None:
            for name in (outcome.run.name, ""):
                took.setdefault(name, []).append(float(seconds))
    return {one.run.key: statistics.median(took.get(one.run.name) or took[""]) for one in outcomes if took}


def has_begun(runs: Iterable[Run], folder: Path) -> bool:
    """Whether any of the runs has a directory, or has failed before it made one."""
    return any(directory(folder, run).exists() or error_file(folder, run).exists() for run in runs)


def carry_out(
    known: Mapping[str, RunOutcome],
    folder: Path | None,
    watcher: Watcher,
    *,
    executor: Executor,
    options: RunOptions = USUAL,
) -> tuple[dict[str, RunOutcome], Stopped | None]:
    """Run the runs that are not done, after `known_outcomes`, with an executor; all but `InProcess` need a folder.

    Returns the outcomes of all runs by key, and the signal that stopped them, if any.
    """
    outcomes = dict(known)
    todo = [outcome.run for outcome in outcomes.values() if outcome.status != "done"]
    stopped: Stopped | None = None
    with terminations():  # the trainer of a run in this process handles its own
        try:
            with contextlib.closing(executor.execute(todo, folder, watcher, options)) as ended:
                for outcome in ended:
                    outcomes[outcome.run.key] = outcome
                    watcher.ends(outcome)
                    if outcome.status == "open":
                        raise Terminated
                    if folder is not None:
                        write_tables(list(outcomes.values()), folder)
        except Terminated:
            stopped = "terminated"
        except KeyboardInterrupt:
            stopped = "interrupted"
    if folder is not None and has_begun([one.run for one in outcomes.values()], folder):
        if stopped is not None:  # some may have ended before the signal
            outcomes |= {key: inspect(folder, one.run) for key, one in outcomes.items() if one.status != "done"}
        clear_errors(folder, outcomes.values())
        write_tables(list(outcomes.values()), folder)
    return outcomes, stopped
