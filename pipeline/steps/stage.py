"""Stages: all vertices of the interval in one call, its in-edges in chunks of a fixed size."""

from __future__ import annotations

from typing import Any

from dorylax.pipeline.concurrent import all_of
from dorylax.pipeline.graph_server import GraphServer, Job
from dorylax.pipeline.interval_pass import IntervalPass
from dorylax.pipeline.stages import stage_cost, stage_effort
from dorylax.program.tasks.stage_calls import call, chunks, cut_operands, joined
from dorylax.program.tasks.steps import Step
from dorylax.serverless.task import TaskKey, TensorTask


async def run(server: GraphServer, step: Step, current: IntervalPass) -> None:
    """Run a stage."""
    bounds = server.shard.bounds if step.space == "vertex" else server.shard.edge_bounds
    size = server.context.sizes.of(step)
    calls = list(chunks(bounds[current.interval + 1] - bounds[current.interval], size))
    # Tasks on abstract arrays read no operands.
    sources = () if server.context.abstract else step.sources
    values = () if server.context.abstract else tuple(map(current.value, step.reads))
    tasks = []
    for place, (first, last) in enumerate(calls):
        cost = stage_cost(step, last - first)
        task = TensorTask(
            TaskKey(current.epoch, current.number, step.index, place),
            server.shard.server,
            current.version,
            current.weights,
            values if len(calls) == 1 else tuple(cut_operands(sources, values, first, last)),
            sources,
            step.targets,
            last - first,
            size,
            cost.flops,
            cost.bytes_in,
            cost.bytes_out,
            ahead=current.ahead,
            row_bytes_in=cost.row_bytes_in,
            requests=cost.requests,
            elementwise=cost.elementwise,
            effort=stage_effort(step, size),
        )
        tasks.append(_run_task(server, step, current, task))
    parts = await all_of(tasks)
    # Rows of vertices stay padded for the next stage.
    results = (
        parts[0] if step.space == "vertex" else joined(step.targets, parts, [last - first for first, last in calls])
    )
    current.values.update(zip(step.writes, results, strict=True))


async def _run_task(server: GraphServer, step: Step, current: IntervalPass, task: TensorTask) -> tuple[Any, ...]:
    """Run one call on a worker, or on the graph server's own threads."""
    epoch, now = current.epoch, server.context.clock.now()
    synchronous = server.required(current) == epoch
    if server.placement.on_functions(step, epoch, current.interval, now=now, synchronous=synchronous):
        return await server.ask_worker(step, current, task)
    function = server.functions[step.index]

    def work() -> tuple[Any, ...]:
        return call(function, task.sources, task.operands, task.count, task.size)

    job = Job(
        step, current, task.key.chunk, task.flops, task.bytes_in + task.bytes_out, step.label, None, task.elementwise
    )
    return (await server.compute(job, work)).value


async def run_without_rows(server: GraphServer, step: Step, current: IntervalPass) -> None:
    """Run arithmetic without rows that depends on results of stages, on the graph server. This is rare."""
    results = server.functions[step.index](*map(current.value, step.reads))
    current.values.update(zip(step.writes, results, strict=True))
