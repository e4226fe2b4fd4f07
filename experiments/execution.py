"""Executes a sweep: runs the open runs, keeps its tables up to date, and handles Ctrl-C and SIGTERM."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from dorylax.experiments.executors.base import Executor, Watcher
from dorylax.experiments.runner import USUAL, RunOptions, clear_errors, directory, error_file, inspect
from dorylax.experiments.seed_statistics import median
from dorylax.experiments.sweep import Run, RunOutcome, Sweep
from dorylax.experiments.table import write_tables
from dorylax.terminal.terminations import Terminated, terminations
from dorylax.trainer.saving.places import lost_newest

Stopped: TypeAlias = Literal["interrupted", "terminated"]
"""By Ctrl-C, or by SIGTERM."""


def known_outcomes(sweep: Sweep, folder: Path | None) -> dict[str, RunOutcome]:
    """The outcomes of a sweep's runs by key, as their directories tell; without a folder all are open.

    A run that is done is open again if its newest checkpoint is lost: it continues from the one before.
    """
    if folder is None:
        return {run.key: RunOutcome(run, "open") for run in sweep.runs}
    found = [inspect(folder, run) for run in sweep.runs]
    return {one.run.key: RunOutcome(one.run, "open") if _has_lost(folder, one) else one for one in found}


def _has_lost(folder: Path, outcome: RunOutcome) -> bool:
    run = outcome.run
    if outcome.status != "done" or run.simulation is not None:
        return False
    return lost_newest(directory(folder, run), run.config.train.checkpoints, outcome.summary["epochs"])


def known_seconds(outcomes: Iterable[RunOutcome]) -> dict[str, list[float]]:
    """Wall seconds of completed runs by setting; all of them under ""."""
    found: dict[str, list[float]] = {}
    for outcome in outcomes:
        seconds = (outcome.summary.get("timings") or {}).get("wall")
        if outcome.status == "done" and seconds is not None:
            for name in (outcome.run.name, ""):
                found.setdefault(name, []).append(float(seconds))
    return found


def typical_seconds(run: Run, known: Mapping[str, list[float]]) -> float | None:
    """Median of the run's setting, else of all; None if nothing is known."""
    return median(known.get(run.name) or known.get("") or ())


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
    """Run the runs that are not done.

    Args:
        known: Outcomes so far, from `known_outcomes`.
        folder: Folder of the sweep; None to write nothing.
        watcher: Receives events.
        executor: Runs the runs; all but `InProcess` need a folder.
        options: Options of all runs.

    Returns:
        The outcomes of all runs by key, and the signal that stopped them, if any.
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
            outcomes |= {key: inspect(folder, one.run) for key, one in outcomes.items() if one.status == "open"}
        clear_errors(folder, outcomes.values())
        write_tables(list(outcomes.values()), folder)
    return outcomes, stopped
