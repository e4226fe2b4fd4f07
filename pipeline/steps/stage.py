"""Stages: all vertices of the interval in one call, its in-edges in chunks of a fixed size."""

from __future__ import annotations

from typing import Any

import numpy as np

from dorylax.pipeline.concurrent import all_of
from dorylax.pipeline.graph_server import GraphServer, Job
from dorylax.pipeline.plan import Step
from dorylax.pipeline.stages import stage_cost, stage_effort, together
from dorylax.pipeline.visit import Visit
from dorylax.serverless.rows import cut, padded_operands
from dorylax.serverless.task import TaskKey, TensorTask


async def run(server: GraphServer, step: Step, visit: Visit) -> None:
    """See `RunStep`."""
    bounds = server.shard.bounds if step.space == "vertex" else server.shard.edge_bounds
    count = bounds[visit.interval + 1] - bounds[visit.interval]
    size = server.context.sizes.of(step)
    firsts = range(0, count, size) or [0]  # without edges, still one call: for what has no rows
    chunks = [(first, min(first + size, count)) for first in firsts]
    # Who computes nothing need not be handed anything.
    read = () if server.context.abstract else tuple(zip(step.reads, step.sources, strict=True))
    sources = tuple(source for _, source in read)
    calls = []
    for place, (first, last) in enumerate(chunks):
        operands = []
        for var, source in read:
            value = visit.value(var)
            if source.source == "rows" and len(chunks) > 1:
                value = cut(value, source.axis, source.factor, first, last)
            operands.append(value)
        cost = stage_cost(step, last - first)
        task = TensorTask(
            TaskKey(visit.epoch, visit.number, step.index, place),
            server.shard.server,
            visit.version,
            visit.weights,
            tuple(operands),
            sources,
            step.targets,
            last - first,
            size,
            cost.flops,
            cost.bytes_in,
            cost.bytes_out,
            ahead=visit.ahead,
            row_bytes_in=cost.row_bytes_in,
            requests=cost.requests,
            elementwise=cost.elementwise,
            effort=stage_effort(step, size),
        )
        calls.append(_call(server, step, visit, task))
    parts = await all_of(calls)
    if step.space == "vertex":
        results = list(parts[0])
    else:
        types = server.context.plan.program.analysis.types
        results = together(step, parts, [last - first for first, last in chunks], types)
    visit.values.update(zip(step.writes, results, strict=True))


async def _call(server: GraphServer, step: Step, visit: Visit, task: TensorTask) -> tuple[Any, ...]:
    """One call: by a worker, or by the graph server's own threads."""
    epoch, now = visit.epoch, server.context.clock.now()
    synchronous = server.required(visit) == epoch
    if server.placement.on_functions(step, epoch, visit.interval, now=now, synchronous=synchronous):
        return await server.ask_worker(step, visit, task)
    function = server.functions[step.index]

    def work() -> tuple[Any, ...]:
        return tuple(np.asarray(value) for value in function(*padded_operands(task)))

    job = Job(
        step, visit, task.key.chunk, task.flops, task.bytes_in + task.bytes_out, step.label, None, task.elementwise
    )
    return (await server.compute(job, work)).value
