"""What runs to an accuracy say: which accuracy is the target, which settings are chosen, what it took to get there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np

from dorylax.experiments.convergence import WINDOW, crossing
from dorylax.experiments.seed_statistics import Interval, paired_ratio

MARGIN = 0.005
"""Below the least of the sides' best accuracies, and twice as much below the best of all."""

Curve = Sequence[Sequence[float]]
"""Of a run: steps, seconds, seconds of cores, accuracies of validation and test, of each evaluation."""


@final
class Run(NamedTuple):
    """A run.

    Attributes:
        settings: it was made with.
        set_up: seconds before its first step.
        set_up_cores: seconds of cores before it.
        curve: what it reached.
    """

    settings: Mapping[str, Any]
    set_up: float
    set_up_cores: float
    curve: Curve

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Run:
        """As a side gives it, with the settings of its `work`."""
        set_up = record["set_up"]
        return cls(record["work"]["settings"], set_up["seconds"], set_up["core_seconds"], record["points"])


@final
class Reached(NamedTuple):
    """What it took to get to a target; where that was never reached, what the run took in all.

    Attributes:
        steps: updates.
        seconds: of training.
        with_set_up: seconds from the beginning.
        core_seconds: of all cores, set-up included.
        censored: it was never reached.
    """

    steps: float
    seconds: float
    with_set_up: float
    core_seconds: float
    censored: bool


def best(run: Run) -> float:
    """The best validation accuracy that a run keeps for as long as is averaged, `WINDOW` evaluations."""
    values = [point[3] for point in run.curve]
    if len(values) < WINDOW:
        return float(np.mean(values))
    return float(np.lib.stride_tricks.sliding_window_view(values, WINDOW).mean(axis=1).max())


def test_at_best(run: Run) -> float:
    """The test accuracy where the validation accuracy was best."""
    return float(max(run.curve, key=lambda point: point[3])[4])


def targets_of(trials: Mapping[str, Sequence[Run]]) -> list[float]:
    """What every side has reached with some settings, less a margin; and what the best has, less two, if that is more."""
    found = [max(map(best, runs)) for runs in trials.values()]
    common, high = min(found) - MARGIN, max(found) - 2 * MARGIN
    return [common, high] if high > common else [common]


def reached(run: Run, target: float) -> Reached:
    """What it took; at the last of the evaluations that are averaged."""
    found = crossing([point[3] for point in run.curve], target)
    steps, seconds, cores, *_ = run.curve[found.epochs - 1]
    return Reached(steps, seconds, run.set_up + seconds, run.set_up_cores + cores, found.censored)


def chosen(runs: Sequence[Run], target: float) -> Mapping[str, Any]:
    """The settings with which a target was reached first, set-up included; by the best accuracy where none did."""
    found = [reached(run, target) for run in runs]
    order = [
        (one.censored, -best(run) if one.censored else one.with_set_up) for run, one in zip(runs, found, strict=True)
    ]
    return runs[order.index(min(order))].settings


def compared(mine: Sequence[float], ours: Sequence[float]) -> Interval:
    """How many times as much, paired by seeds."""
    return paired_ratio(mine, ours)
