"""Estimates of the time of runs, from runs that are done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dorylax.experiments.outcome import RunOutcome
from dorylax.experiments.seed_statistics import median
from dorylax.experiments.sweep import Run


def known_seconds(outcomes: Iterable[RunOutcome]) -> dict[str, list[float]]:
    """Wall seconds of completed runs by setting; all of them under ""."""
    found: dict[str, list[float]] = {}
    for outcome in outcomes:
        seconds = (outcome.summary.get("timings") or {}).get("wall")
        if outcome.status != "done" or seconds is None:
            continue
        for name in (outcome.run.name, ""):
            found.setdefault(name, []).append(float(seconds))
    return found


def typical_seconds(run: Run, known: Mapping[str, list[float]]) -> float | None:
    """Median of the run's setting, else of all; None if nothing is known."""
    return median(known.get(run.name) or known.get("") or ())
