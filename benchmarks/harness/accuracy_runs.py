"""Runs to an accuracy: settings to try, the target accuracy, and the time to reach it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np

from dorylax.experiments.measures import WINDOW, crossing
from dorylax.experiments.seed_statistics import mean_of_ratios

MARGIN = 0.005
"""Below the least of the sides' best accuracies, and twice as much below the best of all."""

Settings = Mapping[str, Any]

_SHARED: dict[str, Sequence[Any]] = {
    "model": ("gcn", "sage"),
    "learning_rate": (0.003, 0.01, 0.03),
    "weight_decay": (0.0, 5e-4),
    "dropout": (0.0, 0.5),
}
_SAMPLED = {**_SHARED, "batch": (512, 2048), "fanout": (5, 10, 25), "workers": (0, 1)}
SPACES = {"dorylax": _SHARED, "dgl": _SHARED, "pyg": _SHARED, "dgl-sampling": _SAMPLED}
"""By side: the values of each setting. The model has two layers, 128 wide; dropout is of each layer's input, weight decay is
added to the gradient, Adam optimizes."""

_FULL_GRAPH = {"model": "gcn", "learning_rate": 0.01, "weight_decay": 5e-4, "dropout": 0.5}
EXAMPLES: Mapping[str, Settings] = {
    **dict.fromkeys(("dorylax", "dgl", "pyg"), _FULL_GRAPH),
    # DGL's examples/sampling/node_classification.py.
    "dgl-sampling": _FULL_GRAPH | {"model": "sage", "learning_rate": 1e-3, "batch": 1024, "fanout": 10, "workers": 0},
}
"""By side: the settings of the library's own example for node classification, tried first."""


def drawn(side: str, trials: int) -> list[Settings]:
    """The settings that are tried, as many for every side: the example's, then others by chance, each once."""
    space = SPACES[side]
    every = [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]
    others = [one for one in every if one != EXAMPLES[side]]
    return [EXAMPLES[side], *random.Random(0).sample(others, trials - 1)]


@final
class Run(NamedTuple):
    """A run.

    Attributes:
        settings: Settings of the run.
        set_up: Seconds, and seconds of cores, before its first step.
        curve: Of each evaluation: steps, seconds, seconds of cores, accuracies of validation and test.
    """

    settings: Settings
    set_up: Sequence[float]
    curve: Sequence[Sequence[float]]


@final
class Reached(NamedTuple):
    """The cost of a target; of one that was never reached (`censored`), the cost of the run.

    Attributes:
        steps: Updates.
        seconds: Of training.
        with_set_up: Seconds from the beginning.
        core_seconds: Of all cores, set-up included.
        censored: Whether the run never reached the target.
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
    """The least of the sides' best accuracies, less a margin; and the best of all, less two, if that is more."""
    found = [max(map(best, runs)) for runs in trials.values()]
    common, high = min(found) - MARGIN, max(found) - 2 * MARGIN
    return [common, high] if high > common else [common]


def reached(run: Run, target: float) -> Reached:
    """The cost of a target, at the last of the evaluations that are averaged."""
    evaluations = crossing([point[3] for point in run.curve], target)
    steps, seconds, cores, *_ = run.curve[-1 if evaluations is None else evaluations - 1]
    return Reached(steps, seconds, run.set_up[0] + seconds, run.set_up[1] + cores, evaluations is None)


def chosen(runs: Sequence[Run], target: float) -> Settings:
    """The settings with which a target was reached first, set-up included; by the best accuracy where none did."""

    def rank(run: Run) -> tuple[bool, float]:
        found = reached(run, target)
        return found.censored, -best(run) if found.censored else found.with_set_up

    return min(runs, key=rank).settings


def ratios(mine: Sequence[Reached], ours: Sequence[Reached]) -> dict[str, list[float]]:
    """How many times as much, paired by seeds: estimate, and the ends of its interval."""
    found = {}
    for name in ("seconds", "with_set_up", "core_seconds"):
        interval = mean_of_ratios([([getattr(one, name) for one in mine], [getattr(one, name) for one in ours])])
        found[name] = [interval.estimate, interval.low, interval.high]
    return found
