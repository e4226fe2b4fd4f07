"""Carries out a sweep: runs what is not done, keeps its tables up to date, and hears Ctrl-C and SIGTERM.

Each run is `runner`'s or, side by side, `jobs`'; what is shown meanwhile is the watcher's.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal, TypeAlias, final

from dorylax.experiments.jobs import execute_side_by_side
from dorylax.experiments.outcome import RunOutcome
from dorylax.experiments.runner import (
    USUAL,
    DataCache,
    RunOptions,
    clear_errors,
    directory,
    error_file,
    execute,
    inspect,
)
from dorylax.experiments.sweep import Run, Sweep
from dorylax.experiments.table import write_tables
from dorylax.experiments.watcher import Watcher

Stopped: TypeAlias = Literal["interrupted", "terminated"]
"""By Ctrl-C, or by SIGTERM."""


def known_outcomes(sweep: Sweep, folder: Path | None) -> dict[str, RunOutcome]:
    """What is known about the runs of a sweep, by key; in no folder all are still to do."""
    return {run.key: RunOutcome(run, "open") if folder is None else inspect(folder, run) for run in sweep.runs}


def has_begun(runs: Iterable[Run], folder: Path) -> bool:
    """Whether any of the runs has a directory, or has failed before it made one."""
    return any(directory(folder, run).exists() or error_file(folder, run).exists() for run in runs)


def carry_out(
    known: Mapping[str, RunOutcome],
    folder: Path | None,
    watcher: Watcher,
    *,
    jobs: int = 1,
    options: RunOptions = USUAL,
    cache: DataCache | None = None,
) -> tuple[dict[str, RunOutcome], Stopped | None]:
    """Runs what is not done.

    Args:
        known: as `known_outcomes` gives it.
        folder: of the sweep; None to leave nothing.
        watcher: told of what happens.
        jobs: how many at a time; more than one are processes of their own.
        options: what holds for all runs.
        cache: may hold data that are loaded already; for runs in this process.

    Returns:
        What has become of all runs, by key, and what has stopped them, if anything.
    """
    outcomes = dict(known)
    todo = [outcome.run for outcome in outcomes.values() if outcome.status != "done"]
    stopped: Stopped | None = None
    with _terminations():
        try:
            ended = (
                execute(todo, folder, watcher, options, cache)
                if jobs == 1 or folder is None
                else execute_side_by_side(todo, folder, jobs, watcher, options)
            )
            with contextlib.closing(ended):
                for outcome in ended:
                    outcomes[outcome.run.key] = outcome
                    watcher.ends(outcome)
                    if outcome.status == "open":
                        raise _Terminated
                    if folder is not None:
                        write_tables(list(outcomes.values()), folder)
        except _Terminated:
            stopped = "terminated"
        except KeyboardInterrupt:
            stopped = "interrupted"
    if folder is not None and has_begun([one.run for one in outcomes.values()], folder):
        if stopped is not None:  # some may have come to their end before they were stopped
            outcomes |= {key: inspect(folder, one.run) for key, one in outcomes.items() if one.status == "open"}
        clear_errors(folder, outcomes.values())
        write_tables(list(outcomes.values()), folder)
    return outcomes, stopped


@final
class _Terminated(BaseException):
    """SIGTERM, which the trainer of a run in this process hears itself."""


@contextlib.contextmanager
def _terminations() -> Iterator[None]:
    """SIGTERM between runs, or while others run them, ends the sweep as Ctrl-C does."""

    def terminate(*_: object) -> None:
        raise _Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
