"""How long runs take, by those that are done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dorylax.experiments.outcome import RunOutcome
from dorylax.experiments.seed_statistics import median
from dorylax.experiments.sweep import Run


def known_seconds(outcomes: Iterable[RunOutcome]) -> dict[str, list[float]]:
    """Real seconds of runs that are done, by setting, and under "" of all."""
    found: dict[str, list[float]] = {}
    for outcome in outcomes:
        seconds = (outcome.summary.get("timings") or {}).get("wall")
        if outcome.status != "done" or seconds is None:
            continue
        for name in (outcome.run.name, ""):
            found.setdefault(name, []).append(float(seconds))
    return found


def typical_seconds(run: Run, known: Mapping[str, list[float]]) -> float | None:
    """What a run will take: the median of its setting, else of all; None where nothing is known."""
    return median(known.get(run.name) or known.get("") or ())
