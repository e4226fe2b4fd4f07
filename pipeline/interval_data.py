"""The data of a server and its intervals: rows of features, labels and weights, padded for stages."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import pairwise
from typing import Any

import jax.numpy as jnp
import numpy as np

from dorylax.aligned import rows_of
from dorylax.graph.array_names import MASKS as MASK_NAMES
from dorylax.graph.cutting import Cutting
from dorylax.graph.dataset import Dataset
from dorylax.graph.shard import AnyShard
from dorylax.jax_internals import Var, type_of, variables
from dorylax.pipeline.prepare import PreparedPlan
from dorylax.pipeline.stages import StageSizes, abstract_like
from dorylax.program.jaxpr.symbols import SYMBOLS
from dorylax.program.rows.types import Rows
from dorylax.serverless.rows import pad


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
    prepared: PreparedPlan, rows: Mapping[str, np.ndarray], shard: AnyShard, num_training: int
) -> dict[int, Any]:
    """Return the server's values that steps read, by position of the input. Values per edge are in slot order.

    Args:
        prepared: The plan and its functions.
        rows: Named rows (`own_rows`).
        shard: The server's part of the graph.
        num_training: Number of training vertices in the whole graph.
    """
    traced = prepared.plan.program.traced
    spec, constants = traced.spec, iter(traced.constants)
    lengths = {"vertex": shard.num_rows, "edge": shard.last_edge - shard.first_edge if spec.edge_ids_fit else 0}
    counts = {"vertices": spec.num_vertices, "edges": spec.num_edges if spec.edge_ids_fit else -1}
    wanted, inputs = _wanted(prepared), traced.step.jaxpr.invars
    values: dict[int, Any] = {}
    for k, entry in enumerate(traced.inputs):
        constant = next(constants) if entry.role == "constant" else None
        if not entry.of_data or entry.role == "graph" or inputs[k] not in wanted:
            continue
        match entry.role:
            case "constant":
                values[k] = constant
            case "count":
                values[k] = jnp.int32(counts[entry.name])
            case "real":
                assert entry.space is not None
                values[k] = np.ones(lengths[entry.space], bool)
            case "weights":
                values[k] = (rows[MASKS][0] / num_training).astype(type_of(inputs[k]).dtype)
            case _:
                values[k] = rows[row_name(entry.role, entry.name)]
    return values


def reads_edge_ids(prepared: PreparedPlan) -> bool:
    """Return whether a step reads ids or positions of edges."""
    traced, wanted = prepared.plan.program.traced, _wanted(prepared)
    entries = zip(traced.step.jaxpr.invars, traced.inputs, strict=True)
    return any(var in wanted for var, one in entries if one.role in ("ids", "places") and one.space == "edge")


MASKS = "masks"
"""Name of the masks, bool `[3, n]`: training, validation, test."""
ROWS = "rows"
"""Name of the row numbers in the data set, int64 `[n]`; they differ from vertex ids in reordered data."""


def row_name(role: str, name: str) -> str:
    """Return the name of an input's rows."""
    return f"{role} {name}"


def interval_data(
    prepared: PreparedPlan, values: Mapping[int, Any], shard: AnyShard, sizes: StageSizes
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
    wanted = _wanted(prepared)
    # Rows read only before training are padded on reading, which saves a copy of the features.
    again = {var for step in plan.epoch for var in step.reads}
    found = {(inputs[k], program.traced.inputs[k]): value for k, value in values.items() if inputs[k] in wanted}
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


def abstract_interval_data(prepared: PreparedPlan, shard: AnyShard, sizes: StageSizes) -> list[dict[Var, Any]]:
    """Return the values of `interval_data` as abstract arrays."""
    traced, types = prepared.plan.program.traced, prepared.plan.program.analysis.types
    entries = zip(traced.step.jaxpr.invars, traced.inputs, strict=True)
    wanted = _wanted(prepared)
    found = [var for var, entry in entries if entry.of_data and entry.role != "graph" and var in wanted]
    again = {var for step in prepared.plan.epoch for var in step.reads}
    constants: list[dict[Var, Any]] = []
    for (first, last), (first_edge, last_edge) in zip(pairwise(shard.bounds), pairwise(shard.edge_bounds), strict=True):
        at = {SYMBOLS["vertex"]: last - first, SYMBOLS["edge"]: last_edge - first_edge}
        padded = {**at, SYMBOLS["vertex"]: sizes.vertices}
        mine = {}
        for var in found:
            row_type = types[var]
            is_padded = isinstance(row_type, Rows) and row_type.space == "vertex" and var in again
            mine[var] = abstract_like(var, padded if is_padded else at)
        constants.append(mine)
    return constants


def _wanted(prepared: PreparedPlan) -> set[Var]:
    """Return the variables that steps, publications, outputs and the functions without rows read."""
    plan = prepared.plan
    wanted = {var for step in plan.steps for var in step.reads}
    wanted |= {publication.var for publication in plan.publications}
    return wanted | set(prepared.free.constants) | set(variables(plan.program.traced.step.jaxpr.outvars))
