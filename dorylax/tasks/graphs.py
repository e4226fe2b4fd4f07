"""`GraphPrediction`: a prediction for each of many graphs that are joined into one (`dorylax.graph.merge_graphs`)."""

from __future__ import annotations

import dataclasses
from typing import Any, final

import numpy as np

from dorylax.errors import InputError
from dorylax.graph.data_shape import AbstractData
from dorylax.graph.dataset import Dataset
from dorylax.graph.many import GRAPH_OF
from dorylax.graph.rows import all_rows
from dorylax.ops.readout import Readout, readout
from dorylax.program.model.base import ModelParts
from dorylax.tasks.base import Task, headed
from dorylax.tasks.vertices import Labelled, check_labels, width_of


@final
@dataclasses.dataclass(frozen=True)
class GraphPrediction(Task):
    """Predicts the class or the targets of each graph; a readout reduces the model's rows of its vertices to one.

    An epoch trains on the training graphs only, so that statistics of others (such as batch normalisation) do not affect the
    loss.

    Attributes:
        readout: The reduction: "mean", "sum" or "max".
        of: Required kind of labels; None: either.
    """

    readout: Readout = "mean"
    of: Labelled | None = None

    def prepare(self, data: Dataset) -> Dataset:
        """Return data with labels and masks per graph.

        Raises:
            InputError: The data set does not assign vertices to graphs, or is inconsistent.
        """
        check_labels(self.of, data)
        if GRAPH_OF not in data.vertex_inputs:
            raise InputError(
                f"{data.name} does not say which graph each vertex is of (vertex_inputs has no {GRAPH_OF!r}): make it of "
                "its graphs, by dorylax.graph.merge_graphs"
            )
        graph_of = data.vertex_inputs[GRAPH_OF]
        numbers, first = np.unique(graph_of, return_index=True)
        if graph_of.dtype.kind != "i" or graph_of.ndim != 1 or not np.array_equal(numbers, np.arange(len(numbers))):
            raise InputError(f"{GRAPH_OF} must number the graphs 0 … G-1, each with a vertex, got {_some(numbers)}")
        offsets, sources = data.graph.host_rows()
        across = np.flatnonzero(graph_of[sources] != graph_of[all_rows(offsets)])
        if len(across):
            raise InputError(
                f"an edge joins graph {graph_of[sources[across[0]]]} with another, of {len(across)} such edges"
            )
        rows = {name: getattr(data, name) for name in ("labels", "train_mask", "val_mask", "test_mask")}
        for name, values in rows.items():
            if not np.array_equal(values[first][graph_of], values):
                raise InputError(f"{name} must be the same at all vertices of a graph, as they are the graph's")
        rows = {name: values[first] for name, values in rows.items()}
        return data.of_examples("graphs", graph=data.graph.with_graphs(graph_of, len(first)), **rows)

    def outputs(self, data: Dataset | AbstractData) -> int:
        """Return C classes, or T targets."""
        return width_of(data)

    def wrap(self, parts: ModelParts, data: Dataset) -> ModelParts:
        """Return the model followed by the readout."""
        return headed(parts, _Readout(self.readout, len(data.labels)))


@final
@dataclasses.dataclass(frozen=True)
class _Readout:
    reduce: Readout
    num_graphs: int
    names: tuple[str, ...] = (GRAPH_OF,)

    def __call__(self, rows: Any, **inputs: Any) -> Any:
        return readout(rows, inputs[GRAPH_OF], self.num_graphs, self.reduce)


def _some(numbers: np.ndarray) -> str:
    return ", ".join(map(str, numbers[:5])) + (", …" if len(numbers) > 5 else "")
