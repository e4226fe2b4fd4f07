"""What runs are measured by: the columns of results of simulated ones, what they are called, and what is compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dorylax.observers.progress import dollars, duration
from dorylax.terminal.output import percent


class Measure(NamedTuple):
    """A number that a simulation gives.

    Attributes:
        title: in tables and figures.
        shown: as text.
    """

    title: str
    shown: Callable[[float], str]


def _dollars(value: float) -> str:
    return dollars(value) if value else "–"


def _plain(value: float) -> str:
    return f"{value:.3g}"


MEASURES: Mapping[str, Measure] = {
    "epoch_seconds": Measure("an epoch", duration),
    "seconds": Measure("the run", duration),
    "dollars_functions": Measure("functions", _dollars),
    "dollars_graph_servers": Measure("graph servers", _dollars),
    "dollars_parameter_servers": Measure("parameter servers", _dollars),
    "dollars": Measure("cost", _dollars),
    "value": Measure("value", _plain),
    "graph_servers_busy": Measure("graph servers busy", percent),
    "functions_busy": Measure("functions busy", percent),
    "parameter_servers_busy": Measure("parameter servers busy", percent),
    "network_busy": Measure("network busy", percent),
}
"""By name, as in results.csv. Seconds, US dollars, 1/(seconds · dollars), shares of what is rented; value is missing where
nothing costs anything."""

COMPARED = ("epoch_seconds", "seconds", "dollars", "value")
"""Those that are shown relative to a baseline."""

RATIO = "_ratio"
PUBLISHED = (*MEASURES, *(f"{name}{RATIO}" for name in COMPARED))
"""What can be published of a simulated run: a measure, or its ratio to that of the baseline."""

TO_TARGET = ("epochs", "seconds", "dollars")
"""What it takes training to get to a target accuracy, as is shown relative to a baseline."""

TO_TARGET_RATIO = f"_to_target{RATIO}"
PUBLISHED_OF_TRAINED = tuple(f"{name}{TO_TARGET_RATIO}" for name in TO_TARGET)
"""What can be published of a run that trains."""

SIMULATED: Mapping[str, type] = {"status": str, "simulated_epochs": int, **dict.fromkeys(MEASURES, float)}
"""Columns of results.csv, with their types."""


def of_result(found: Mapping[str, Any]) -> dict[str, Any]:
    """The measures of a simulation.

    Args:
        found: as `Simulated.to_dict` gives it.
    """
    parts, busy = found["dollars"], found["utilisation"]
    return {
        "simulated_epochs": len(found["simulated_epochs"]),
        "epoch_seconds": found["epoch_seconds"],
        "seconds": found["seconds"],
        **{f"dollars_{part}": parts[part] for part in ("functions", "graph_servers", "parameter_servers")},
        "dollars": parts["total"],
        "value": found["value"],
        # Runs of earlier versions do not say it of the network.
        **{f"{part}_busy": busy.get(part) for part in ("graph_servers", "functions", "parameter_servers", "network")},
    }
