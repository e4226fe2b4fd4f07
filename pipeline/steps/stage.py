"""Stages: all vertices of the interval in one call, its in-edges in chunks of a fixed size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dorylax.pipeline.concurrent import all_of
from dorylax.pipeline.fabric import Job
from dorylax.pipeline.plan import Step
from dorylax.pipeline.stages import cut, pad, stage_cost, together
from dorylax.pipeline.visit import Visit
from dorylax.program.rows.types import Rows
from dorylax.serverless.task import TaskKey, TensorTask

if TYPE_CHECKING:
    from dorylax.pipeline.graph_server import GraphServer


async def run(server: GraphServer, step: Step, visit: Visit) -> None:
    """See `RunStep`."""
    facts = server.fabric.plan.program.facts
    bounds = server.shard.bounds if step.space == "vertex" else server.shard.edge_bounds
    count = bounds[visit.interval + 1] - bounds[visit.interval]
    size = server.fabric.sizes.of(step)
    firsts = range(0, count, size) or [0]  # without edges, still one call: for what has no rows
    chunks = [(first, min(first + size, count)) for first in firsts]
    calls = []
    for place, (first, last) in enumerate(chunks):
        operands = []
        for var in server.fabric.plan.program.interfaces[step.index].reads:
            value, found = visit.value(var), facts.types[var]
            if isinstance(found, Rows):
                mine = value if len(chunks) == 1 else cut(value, found, first, last)
                value = pad(mine, found, last - first, size, zero=var in facts.weighted)
            operands.append(value)
        cost = stage_cost(step, last - first)
        key = TaskKey(visit.epoch, visit.number, step.index, place)
        calls.append(_call(server, step, visit, TensorTask(key, server.shard.server, tuple(operands), *cost)))
    parts = await all_of(calls)
    if step.space == "vertex":
        results = list(parts[0])
    else:
        results = together(step, parts, [last - first for first, last in chunks], facts.types)
    visit.values.update(zip(step.writes, results, strict=True))


async def _call(server: GraphServer, step: Step, visit: Visit, task: TensorTask) -> tuple[Any, ...]:
    """One call: by a worker, or by the graph server's own threads."""
    if step.on_worker:
        return await server.ask_worker(step, visit, task)
    function = server.fabric.functions[step.index]

    def work() -> tuple[Any, ...]:
        return tuple(np.asarray(value) for value in function(*task.operands))

    job = Job(step, visit, task.key.chunk, task.flops, task.bytes_in + task.bytes_out, step.label)
    return (await server.compute(job, work)).value
