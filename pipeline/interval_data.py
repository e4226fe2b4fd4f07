"""The data of each interval: its rows of features, labels and weights, padded for its stages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dorylax.graph.shard import Shard
from dorylax.jax_internals import Var
from dorylax.pipeline.prepare import Prepared
from dorylax.pipeline.stages import StageSizes
from dorylax.program.rows.types import Rows
from dorylax.serverless.rows import pad


def interval_data(
    prepared: Prepared, values: Mapping[int, Any], shard: Shard, sizes: StageSizes
) -> list[dict[Var, Any]]:
    """What stages, publications and the driver read of the data.

    Args:
        prepared: the plan, and what its driver reads.
        values: `data_values` of the whole graph, in the order of the layout.
        shard: a server's part of the graph.
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
            bounds, start = (shard.bounds, shard.first) if vertices else (shard.edge_bounds, shard.first_edge)
            first, last = start + bounds[interval], start + bounds[interval + 1]
            rows = np.asarray(value)[first:last]
            if vertices:
                zero = entry.role in ("weights", "real")
                rows = pad(rows, row_type.axis, row_type.factor, last - first, sizes.vertices, zero=zero)
            mine[var] = rows
        constants.append(mine)
    return constants
