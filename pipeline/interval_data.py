"""What a server holds of the data, and each of its intervals: rows of features, labels and weights, padded for stages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from dorylax.graph.shard import Shard
from dorylax.jax_internals import Var
from dorylax.pipeline.prepare import Prepared
from dorylax.pipeline.stages import StageSizes
from dorylax.program.rows.types import Rows
from dorylax.program.tracing.traced import Input, Traced
from dorylax.serverless.rows import pad

_MADE = ("count", "real")  # known without being stored


def server_values(traced: Traced, values: Mapping[int, Any], shard: Shard) -> dict[int, Any]:
    """Of `data_values` of the whole graph, in the order of the layout, those of a server: views of its own rows.

    The graph's arrays are not among them: a server has its shard.
    """
    spans = {"vertex": slice(shard.first, shard.last), "edge": slice(shard.first_edge, shard.last_edge)}
    entries = {k: traced.inputs[k] for k in values if traced.inputs[k].role != "graph"}
    return {
        k: values[k] if entry.space is None or entry.role == "count" else np.asarray(values[k])[spans[entry.space]]
        for k, entry in entries.items()
    }


def stored_rows(traced: Traced, values: Mapping[int, Any]) -> dict[str, np.ndarray]:
    """Of a server's values those that have rows, by the names under which `stored_values` finds them."""
    entries = ((traced.inputs[k], value) for k, value in values.items())
    return {
        _stored(entry): np.asarray(value)
        for entry, value in entries
        if entry.space is not None and entry.role not in _MADE
    }


def stored_values(traced: Traced, rows: Mapping[str, np.ndarray], shard: Shard) -> dict[int, Any]:
    """A server's values, where it has the rows that `stored_rows` gave; as `server_values` otherwise."""
    spec, constants = traced.spec, iter(traced.constants)
    lengths = {"vertex": shard.num_rows, "edge": shard.last_edge - shard.first_edge if spec.edge_ids_fit else 0}
    counts = {"vertices": spec.num_vertices, "edges": spec.num_edges if spec.edge_ids_fit else -1}
    values: dict[int, Any] = {}
    for k, entry in enumerate(traced.inputs):
        if entry.role == "count":
            values[k] = jnp.int32(counts[entry.name])
        elif entry.role == "constant":
            values[k] = next(constants)
        elif entry.role == "real":
            assert entry.space is not None
            values[k] = np.ones(lengths[entry.space], bool)
        elif entry.of_data and entry.role != "graph":
            values[k] = rows[_stored(entry)]
    return values


def _stored(entry: Input) -> str:
    return f"{entry.role} {entry.name}"


def interval_data(
    prepared: Prepared, values: Mapping[int, Any], shard: Shard, sizes: StageSizes
) -> list[dict[Var, Any]]:
    """What stages, publications and the driver read of the data.

    Args:
        prepared: the plan, and what its driver reads.
        values: of a server, by position of the input.
        shard: its part of the graph.
        sizes: rows of each call of a stage.

    Returns:
        Values by variable for each interval of the server. Values without rows are shared.
    """
    plan = prepared.plan
    program = plan.program
    types, inputs = program.analysis.types, program.traced.step.jaxpr.invars
    wanted = {var for step in plan.steps for var in step.reads}
    wanted |= {publication.var for publication in plan.publications}
    wanted |= set(prepared.driver.constants)
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
            if vertices:
                zero = entry.role in ("weights", "real")
                rows = pad(rows, row_type.axis, row_type.factor, last - first, sizes.vertices, zero=zero)
            mine[var] = rows
        constants.append(mine)
    return constants
