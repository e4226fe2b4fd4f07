"""The data of a run as columns: mapped arrays read from their files, all other arrays from memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from dorylax.graph.compressed import CompressedGraph
from dorylax.graph.mapped import check_unchanged
from dorylax.jax_internals import Var
from dorylax.program.tasks.split_model import SplitModel
from dorylax.program.tracing import arguments
from dorylax.program.tracing.traced import Input
from dorylax.streaming.columns import Column, ComputedColumn, FileColumn, WholeColumn, file_of
from dorylax.streaming.units import Units

_CHECKED_BYTES = 4096


@final
@dataclasses.dataclass(frozen=True, eq=False)
class StreamData:
    """Data of a program on the host.

    Attributes:
        graph: V vertices, E edges.
        inputs: Inputs of the model other than the graph, as in `RunData.inputs`.
        labels: `[V, …]`.
        train_mask: bool `[V]`; each of its vertices has the same share of the loss.
    """

    graph: CompressedGraph
    inputs: Sequence[np.ndarray]
    labels: np.ndarray
    train_mask: np.ndarray


def data_inputs(program: SplitModel, data: StreamData, units: Units) -> dict[Var, Any]:
    """Return the inputs that a program reads: columns of rows, and values without rows.

    Raises:
        OSError: The file of a mapped array cannot be opened.
        RunError: The file has been replaced.
    """
    traced, graph = program.traced, data.graph
    rows = [entry.name for entry in traced.inputs if entry.role == "rows"]
    arrays = dict(zip(rows, data.inputs, strict=True))
    found = arguments.data_inputs(
        traced,
        lambda _, entry: _column(entry, arrays, data, units),
        graph.num_vertices,
        graph.num_edges,
        program.read_inputs,
    )
    return {traced.step.jaxpr.invars[k]: value for k, value in found.items()}


def index_column(graph: CompressedGraph, units: Units) -> Column:
    """Return the column of the neighbours of each unit's in-edges."""
    return _stored(graph.incoming.neighbours, units.edges, graph.num_vertices)


def _column(entry: Input, arrays: dict[str, np.ndarray], data: StreamData, units: Units) -> Column:
    graph = data.graph
    bounds = units.vertices if entry.space == "vertex" else units.edges
    if entry.role == "real":
        return ComputedColumn(lambda first, last: np.ones(last - first, bool), bounds)
    if entry.role == "labels":
        return _stored(data.labels, bounds)
    if entry.role == "weights":
        mask, share = data.train_mask, np.float32(1 / max(1, data.train_mask.sum()))
        return ComputedColumn(lambda first, last: np.where(mask[first:last], share, np.float32(0)), bounds)
    if entry.role == "rows":
        array = arrays[entry.name]
        if entry.space == "edge" and graph.edge_order is not None:
            array = array[graph.edge_order]  # from the user's order into that of slots
        return _stored(array, bounds)
    if entry.space == "vertex":
        return _numbers(graph.vertex_ids, bounds)
    order = graph.edge_order
    if entry.role == "places" or graph.edge_ids is None:
        return _numbers(order, bounds)
    return WholeColumn(graph.edge_ids if order is None else graph.edge_ids[order], bounds)


def _numbers(numbers: np.ndarray | None, bounds: np.ndarray) -> Column:
    if numbers is not None:
        return WholeColumn(np.asarray(numbers), bounds)
    return ComputedColumn(lambda first, last: np.arange(first, last, dtype=np.int32), bounds)


def _stored(array: np.ndarray, bounds: np.ndarray, limit: int | None = None) -> Column:
    array = np.asarray(array)
    place = file_of(array)
    if place is None:
        return WholeColumn(array, bounds)
    path, position = place
    column = FileColumn(path, position, array.dtype, array.shape[1:], bounds, limit=limit)
    check_unchanged(array)
    each = max(1, array[:1].nbytes)
    column.check(array[: max(1, _CHECKED_BYTES // each)])
    return column
