"""The data of a server and its intervals: rows of features, labels and weights, padded for stages."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from dorylax.aligned import rows_of
from dorylax.graph.array_names import MASKS as MASK_NAMES
from dorylax.graph.cutting import Cutting
from dorylax.graph.dataset import Dataset
from dorylax.graph.shard import AnyShard
from dorylax.jax_internals import Var, type_of
from dorylax.pipeline.prepare import Prepared
from dorylax.pipeline.stages import StageSizes, abstract_like
from dorylax.program.jaxpr.symbols import SYMBOLS
from dorylax.program.rows.types import Rows
from dorylax.program.tasks.stage_calls import pad
from dorylax.program.tracing.arguments import data_inputs
from dorylax.program.tracing.traced import Input


def own_rows(
    data: Dataset,
    cutting: Cutting,
    shard: AnyShard,
    order: np.ndarray,
    *,
    ids: bool,
    further: Collection[str] | None = None,
) -> dict[str, np.ndarray]:
    """Return a dict of a server's rows of the data.

    Args:
        data: The data set.
        cutting: Cutting of the graph into shards.
        shard: The server's part of the graph.
        order: Order of the layout.
        ids: Whether to include ids and positions of edges.
        further: Names of further inputs to include; None: all.
    """
    graph, rows = data.graph, order[shard.first : shard.last]
    found = {
        row_name("rows", "features"): rows_of(data.features, rows),
        row_name("labels", "labels"): data.labels[rows],
        row_name("ids", "vertex ids"): (rows if graph.vertex_ids is None else graph.vertex_ids[rows]).astype(np.int32),
        MASKS: np.stack([getattr(data, name)[rows] for name in MASK_NAMES]),
        ROWS: rows,
    }
    vertices, edges = (
        {row_name("rows", name): array for name, array in inputs.items() if further is None or name in further}
        for inputs in (data.vertex_inputs, data.edge_inputs)
    )
    found |= {name: rows_of(array, rows) for name, array in vertices.items()}
    if not (ids or edges):
        return found
    places = cutting.edge_places(shard.server)
    found |= {name: rows_of(array, places) for name, array in edges.items()}
    if ids:
        own = graph.edge_ids
        found[row_name("ids", "edge ids")] = places if own is None else rows_of(own, places)
        found[row_name("places", "edge places")] = places
    return found


def stored_values(
    prepared: Prepared, rows: Mapping[str, np.ndarray], shard: AnyShard, num_training: int
) -> dict[int, Any]:
    """Return the server's values that steps read, by position of the input. Values per edge are in slot order.

    Args:
        prepared: The plan and its functions.
        rows: Named rows (`own_rows`).
        shard: The server's part of the graph.
        num_training: Number of training vertices in the whole graph.
    """
    traced = prepared.plan.program.traced
    lengths = {"vertex": shard.num_rows, "edge": shard.edge_bounds[-1] if traced.spec.edge_ids_fit else 0}

    def array(var: Var, entry: Input) -> np.ndarray:
        if entry.role == "real":
            assert entry.space is not None
            return np.ones(lengths[entry.space], bool)
        if entry.role == "weights":
            weights: np.ndarray = (rows[MASKS][0] / num_training).astype(type_of(var).dtype)
            return weights
        return rows[row_name(entry.role, entry.name)]

    return data_inputs(traced, array, traced.spec.num_vertices or 0, traced.spec.num_edges or 0, _wanted(prepared))


def abstract_values(prepared: Prepared, shard: AnyShard) -> dict[int, Any]:
    """Return the values of `stored_values` with abstract arrays."""
    traced = prepared.plan.program.traced
    at = {SYMBOLS["vertex"]: shard.num_rows, SYMBOLS["edge"]: shard.edge_bounds[-1]}
    sizes = traced.spec.num_vertices or 0, traced.spec.num_edges or 0
    return data_inputs(traced, lambda var, _: abstract_like(var, at), *sizes, _wanted(prepared))


MASKS = "masks"
"""Name of the masks, bool `[3, n]`: training, validation, test."""
ROWS = "rows"
"""Name of the row numbers in the data set, int64 `[n]`; they differ from vertex ids in reordered data."""


def row_name(role: str, name: str) -> str:
    """Return the name of an input's rows."""
    return f"{role} {name}"


def interval_data(
    prepared: Prepared, values: Mapping[int, Any], shard: AnyShard, sizes: StageSizes
) -> list[dict[Var, Any]]:
    """Return the data that stages, publications and the driver read.

    Args:
        prepared: The plan and its functions.
        values: Values of a server by position of the input.
        shard: The server's part of the graph.
        sizes: Rows per call of a stage.

    Returns:
        Values by variable for each interval of the server. Values without rows are shared.
    """
    plan = prepared.plan
    program = plan.program
    types, inputs = program.analysis.types, program.traced.step.jaxpr.invars
    # Rows read only before training are padded on reading, which saves a copy of the features.
    again = {var for step in plan.epoch for var in step.reads}
    found = {(inputs[k], program.traced.inputs[k]): value for k, value in values.items()}
    constants: list[dict[Var, Any]] = []
    for interval in range(shard.num_intervals):
        mine: dict[Var, Any] = {}
        for (var, entry), value in found.items():
            row_type = types[var]
            if not isinstance(row_type, Rows):
                mine[var] = value
                continue
            vertices = row_type.space == "vertex"
            bounds = shard.bounds if vertices else shard.edge_bounds
            first, last = bounds[interval], bounds[interval + 1]
            rows = np.asarray(value)[first:last]
            if vertices and var in again:
                zero = entry.role in ("weights", "real")
                rows = pad(rows, row_type.axis, row_type.factor, last - first, sizes.vertices, zero=zero)
            mine[var] = rows
        constants.append(mine)
    return constants


def _wanted(prepared: Prepared) -> set[Var]:
    """Return the inputs that steps, outputs and the functions without rows read."""
    return {*prepared.plan.program.read_inputs, *prepared.driver.constants}
