"""The evaluation of the Dorylus paper (Thorpe et al., OSDI '21) as scenarios, with its published results."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, final

from dorylax.cost import clusters
from dorylax.cost.cluster_file import changed
from dorylax.simulation.result import Simulated
from dorylax.simulation.scenario import Backend, GraphSizes, Scenario

# Table 1.
GRAPHS: Mapping[str, GraphSizes] = {
    "reddit-small": GraphSizes(232_900, 114_800_000, 602, 41),
    "reddit-large": GraphSizes(1_100_000, 1_300_000_000, 301, 50),
    "amazon": GraphSizes(9_200_000, 313_900_000, 300, 25),
    "friendster": GraphSizes(65_600_000, 3_600_000_000, 32, 50),
}
CUT_RATIO = 0.17
"""Edges cut by its partitions, relative to a random assignment of vertices. Fitted (docs/log/2026-11.md)."""

# Section 7: widths of hidden layers. Epochs to target are not published: enough to make the preparation small.
_HIDDEN = {"reddit-small": 128, "reddit-large": 128, "amazon": 64, "friendster": 48}
_EPOCHS = 100
# The paper's system without dorylax's additions: layers as its programs have them, features gathered in every epoch, an
# interval's gather by one thread, and functions that compute while rows arrive.
_SYSTEM: dict[str, Any] = {
    "tensor.placement": "functions",
    "pipeline.reorder": False,
    "pipeline.hoist": False,
    "pipeline.edge_chunk": 10**9,
    "tensor.streaming": True,
}
# With S = 0.
_ASYNC: dict[str, Any] = {
    "pipeline.mode": "async",
    "pipeline.staleness": 0,
    "pipeline.freshness": 0.0,
    "pipeline.predict_weights": "none",
    "pipeline.stability_gate": False,
}
_MODELS: Mapping[str, dict[str, Any]] = {
    "gcn": {"model.name": "dorylax.simulation.paper_models:GatherFirstGCN"},
    "gat": {"model.name": "dorylax.simulation.paper_models:PerEdgeGAT"},
}


class Published(NamedTuple):
    """A cell of tables 3 and 4: seconds to the target accuracy, and dollars without parameter servers."""

    seconds: float
    dollars: float


@final
@dataclasses.dataclass(frozen=True)
class Row:
    """A row of tables 3 and 4.

    Attributes:
        model: "gcn" or "gat".
        graph: Name in `GRAPHS`.
        servers, parameter_servers: Numbers of servers.
        published: Results by backend.
        synchronous: Whether it ran without asynchrony.
    """

    model: str
    graph: str
    servers: int
    parameter_servers: int
    published: Mapping[Backend, Published]
    synchronous: bool = False

    @property
    def name(self) -> str:
        """Name of the row and of its cluster."""
        return f"{self.model}-{self.graph}"

    def scenario(self, backend: Backend = "functions") -> Scenario:
        """Return the row's run on a backend, as the public release runs it (`run/run-onnode`).

        With functions, each server has one interval per function. Servers alone run one synchronous interval, on one GPU
        or on all threads of a CPU (simulated as one interval per thread).
        Memory is not limited: the paper does not say which arrays its servers kept.
        """
        cluster = clusters()[self.name]
        alone = cluster.graph_server.threads if backend == "cpu" else 1
        settings: dict[str, Any] = {
            "model.hidden_features": _HIDDEN[self.graph],
            "train.epochs": _EPOCHS,
            "pipeline.servers": self.servers,
            "pipeline.parameter_servers": self.parameter_servers,
            "pipeline.intervals": cluster.functions if backend == "functions" else alone,
            "pipeline.cluster": self.name,
            **_SYSTEM,
            **_MODELS[self.model],
            **({"pipeline.mode": "pipe"} if self.synchronous or backend != "functions" else _ASYNC),
        }
        graph = dataclasses.replace(GRAPHS[self.graph], cut_ratio=CUT_RATIO)
        made = Scenario.of(self.name, settings, graph=graph).on(backend)
        unlimited: dict[str, Any] = {"graph_server.memory": 0.0}
        if backend == "gpu":
            unlimited["graph_server.gpu.memory"] = 1e15
        return dataclasses.replace(made, cluster=changed(made.cluster, unlimited))


def _row(model: str, graph: str, servers: int, parameters: int, *cells: tuple[float, float], **options: Any) -> Row:
    published = dict(zip(("functions", "cpu", "gpu"), (Published(*cell) for cell in cells), strict=True))
    return Row(model, graph, servers, parameters, published, **options)  # type: ignore[arg-type]


TABLES_3_4: Sequence[Row] = (
    _row("gcn", "reddit-small", 2, 2, (860.6, 0.20), (1005.4, 0.19), (162.9, 0.28)),
    _row("gcn", "reddit-large", 12, 4, (1020.1, 1.69), (1290.5, 1.85), (324.9, 3.31), synchronous=True),
    _row("gcn", "amazon", 8, 4, (512.7, 0.79), (710.2, 0.68), (385.3, 2.62)),
    _row("gcn", "friendster", 32, 8, (1133.3, 13.8), (1990.8, 15.3), (1490.4, 40.5)),
    _row("gat", "reddit-small", 10, 4, (496.3, 1.15), (1270.4, 1.20), (130.9, 1.11)),
    _row("gat", "amazon", 12, 4, (853.4, 2.67), (2092.7, 3.01), (1039.2, 10.60)),
)


def dollars_of_paper(found: Simulated) -> float:
    """The paper's bill: graph servers and functions, without parameter servers."""
    bill = found.bill
    return bill.graph_servers + bill.function_time + bill.function_requests


def implied_epochs(published: Published, found: Simulated) -> float:
    """Return the number of epochs that would make a simulated run as long as the published one, which has none.

    A row's backends need about as many, so cells that differ show an error of the time model.
    """
    return (published.seconds - found.prepare) / found.epoch


def content(row: Row, cells: Mapping[Backend, Simulated], missing: Mapping[str, str]) -> dict[str, Any]:
    """Return a row as JSON values: results and published ones by backend, reasons for missing results, and ratios."""
    ours = {backend: (found.seconds, dollars_of_paper(found)) for backend, found in cells.items()}

    def ratios(found: Mapping[Backend, tuple[float, float]], to: Backend) -> dict[str, float] | None:
        return None if (pair := relative(found, to)) is None else {"time": pair[0], "value": pair[1]}

    return {
        "row": row.name,
        "missing": missing,
        "cells": {
            backend: {
                "published": cell._asdict(),
                "simulated": cells[backend].to_dict() if backend in cells else None,
                "epochs_if_equal": implied_epochs(cell, cells[backend]) if backend in cells else None,
            }
            for backend, cell in row.published.items()
        },
        "relative": {
            to: {"published": ratios(row.published, to), "simulated": ratios(ours, to)}
            for to in row.published
            if to != "functions"
        },
    }


def relative(cells: Mapping[Backend, tuple[float, float]], to: Backend) -> tuple[float, float] | None:
    """Return time and value on functions, relative to those on the backend `to`, of cells in seconds and dollars.

    None if a cell is missing.
    """
    if not {"functions", to} <= cells.keys():
        return None
    (seconds, dollars), (other_seconds, other_dollars) = cells["functions"], cells[to]
    return seconds / other_seconds, (other_seconds * other_dollars) / (seconds * dollars)
