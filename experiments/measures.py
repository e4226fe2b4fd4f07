"""The numbers that runs are measured by: their columns, titles, formats, and the questions that a comparison may ask.

The target of a comparison is the baseline's mean best validation accuracy minus one point. A run reaches it when its
validation accuracy, averaged over three evaluations, does. A run that never does is censored at its last epoch.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dorylax.observers.progress import dollars, duration
from dorylax.terminal.output import percent


class Measure(NamedTuple):
    """A number of a run, with its title in tables and its format."""

    title: str
    shown: Callable[[float], str]


def _dollars(value: float) -> str:
    return dollars(value) if value else "–"


MEASURES: Mapping[str, Measure] = {
    "epoch_seconds": Measure("an epoch", duration),
    "seconds": Measure("the run", duration),
    "dollars_functions": Measure("functions", _dollars),
    "dollars_graph_servers": Measure("graph servers", _dollars),
    "dollars_parameter_servers": Measure("parameter servers", _dollars),
    "dollars": Measure("cost", _dollars),
    "value": Measure("value", "{:.3g}".format),
    "graph_servers_busy": Measure("graph servers busy", percent),
    "functions_busy": Measure("functions busy", percent),
    "parameter_servers_busy": Measure("parameter servers busy", percent),
    "network_busy": Measure("network busy", percent),
}
"""Numbers of a simulated run by column of results.csv: seconds, US dollars, 1/(seconds · dollars), utilization (0 to 1)."""

SIMULATED: Mapping[str, type] = {"status": str, "simulated_epochs": int, **dict.fromkeys(MEASURES, float)}
"""Columns of simulated runs in results.csv, with their types."""

COMPARED = ("epoch_seconds", "seconds", "dollars", "value")
"""Measures of simulated runs that have a ratio to the baseline."""

TO_TARGET = ("epochs", "seconds", "dollars")
"""Measures of training until the target is reached that have a ratio to the baseline."""

WINDOW = 3
"""Evaluations averaged before the validation accuracy is compared with the target."""

RATIO = "_ratio"
TO_TARGET_RATIO = f"_to_target{RATIO}"
PUBLISHED = (*MEASURES, *(f"{name}{RATIO}" for name in COMPARED))
"""Names of published numbers of simulated runs."""
PUBLISHED_OF_TRAINED = tuple(f"{name}{TO_TARGET_RATIO}" for name in TO_TARGET)
"""Names of published numbers of training."""


class Question(NamedTuple):
    """The question of a comparison.

    Attributes:
        measure: Of training, one of `TO_TARGET`; None if training has none.
        simulated: Of simulated runs, one of `COMPARED`; None if they have none.
        noun: Name of the measure.
        less: Verdict on a variant with less of it than the baseline.
        more: Verdict on a variant with more.
        claim: Claim about a better variant, before the baseline's name.
        wants_less: Whether less is better.
    """

    measure: str | None
    simulated: str | None
    noun: str
    less: str
    more: str
    claim: str
    wants_less: bool = True

    @property
    def better(self) -> str:
        """Verdict on a better variant."""
        return self.less if self.wants_less else self.more


QUESTIONS: Mapping[str, Question] = {
    "time": Question("seconds", "epoch_seconds", "time", "faster", "slower", "is faster than"),
    "epochs": Question("epochs", None, "epochs", "fewer epochs", "more epochs", "needs fewer epochs than"),
    "cost": Question("dollars", "dollars", "cost", "cheaper", "dearer", "is cheaper than"),
    "value": Question(None, "value", "value", "less value", "more value", "has more value than", wants_less=False),
    "accuracy": Question(
        "accuracy", None, "accuracy", "less accurate", "more accurate", "is as accurate as", wants_less=False
    ),
}
"""By the value of `compare.asks`."""


def of_result(found: Mapping[str, Any]) -> dict[str, Any]:
    """The measures of a simulation, from the content of `Simulated.to_dict`."""
    parts, busy = found["dollars"], found["utilisation"]
    return {
        "simulated_epochs": len(found["simulated_epochs"]),
        "epoch_seconds": found["epoch_seconds"],
        "seconds": found["seconds"],
        **{f"dollars_{part}": parts[part] for part in ("functions", "graph_servers", "parameter_servers")},
        "dollars": parts["total"],
        "value": found["value"],
        # Runs of earlier versions lack the network.
        **{f"{part}_busy": busy.get(part) for part in ("graph_servers", "functions", "parameter_servers", "network")},
    }


def target_of(best: Sequence[float], margin: float = 0.01) -> float:
    """Mean of the best validation accuracies of some runs minus a margin, all fractions.

    Raises:
        ValueError: There is no run.
    """
    if not best:
        raise ValueError("a target needs at least one run, got none")
    return float(np.mean(best)) - margin


def crossing(accuracies: Sequence[float], target: float) -> int | None:
    """Return the number of evaluations (fractions) until the mean of `WINDOW` ones reaches the target; None if none does."""
    for end in range(WINDOW, len(accuracies) + 1):
        if statistics.fmean(accuracies[end - WINDOW : end]) >= target:  # exactly rounded
            return end
    return None
