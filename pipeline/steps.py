"""The steps of an interval, by kind (`RUN`).

Each function computes the values that a step writes, into `IntervalPass.values`. It raises a `TaskFailedError` if a tensor
task failed too often.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np

from dorylax.abstract_array import taken
from dorylax.cost import RowsRead
from dorylax.jax_internals import variables
from dorylax.ops.primitives.operator import Role
from dorylax.ops.row_loops.rows import RowRange
from dorylax.pipeline.graph_server import GraphServer, Job
from dorylax.pipeline.interval_pass import IntervalPass
from dorylax.pipeline.messages import PartsMessage, SumsMessage
from dorylax.pipeline.operators import fill_padding, results_for, row_range, work_on
from dorylax.pipeline.stages import stage_cost, stage_effort
from dorylax.pipeline.stamps import Reads
from dorylax.pipeline.transport.base import payload_bytes
from dorylax.pipeline.transport.first_step import all_of
from dorylax.program.tasks.stage_calls import call, chunks, cut_operands, joined
from dorylax.program.tasks.steps import Step
from dorylax.serverless.task import TaskKey, TensorTask


async def _gather(server: GraphServer, step: Step, current: IntervalPass) -> None:
    """Run a graph operator that computes an interval's own vertices or in-edges: a gather, a scatter to edges, a softmax.

    In asynchronous training, it reads the interval's copy of its neighbors' rows where the backward pass reads them again.
    Otherwise it reads the server's buffers directly.
    """
    first, last = server.bounds(current)
    publications = [operand.publication for operand in step.operands if operand.publication is not None]
    copied = server.context.copies_rows and any(
        server.context.plan.publications[number].copied for number in publications
    )
    if copied:
        for number in publications:
            await server.copy(number, step, current)
        rows = row_range(server.shard.compact(current.interval), 0, last - first)
    else:
        for number in publications:
            await server.wait(number, current)
        rows = row_range(server.shard.incoming if step.side == "in" else server.shard.outgoing, first, last)
    operands = [(operand.role, server.operand(operand, current, copied=copied)) for operand in step.operands]
    entries = int(rows.offsets[-1] - rows.offsets[0])
    context = server.context
    results = results_for(step, last - first, entries, context.sizes.vertices, empty=context.empty)
    await _operate(server, step, current, operands, rows, results=results, publications=[] if copied else publications)
    fill_padding(results, step, last - first)
    outputs = zip(step.equations[0].outvars, results, strict=True)
    current.values.update((var, value) for var, value in outputs if var in step.writes)


async def _operate(
    server: GraphServer,
    step: Step,
    current: IntervalPass,
    operands: Sequence[tuple[Role, np.ndarray]],
    rows: RowRange,
    *,
    results: Sequence[np.ndarray],
    publications: Sequence[int] = (),
) -> None:
    """Run an operator in pieces on the graph threads. The first piece counts the rows that the operator reads.

    Args:
        server: Server of the interval.
        step: The operator.
        current: The interval and its epoch.
        operands: Arrays with their roles.
        rows: Rows of the operator.
        results: Arrays for the results.
        publications: Numbers of the publications whose buffers are among the operands.
    """
    numbers, context = sorted(set(publications)), server.context
    buffers = [server.buffers[number] for number in numbers]
    counted = [
        (server.buffers[number], server.block_counts(number, current.interval))
        for number in numbers
        if not context.plan.publications[number].constant
    ]
    found: list[Reads] = []

    def guarded(place: int, work: Callable[[], None]) -> Callable[[], None]:
        if place and context.abstract:
            return work  # reads no buffer

        def run_piece() -> None:
            with contextlib.ExitStack() as stack:
                for buffer in buffers:
                    stack.enter_context(buffer.guard.reading())
                if place == 0:
                    found.extend(buffer.reads(counts) for buffer, counts in counted)
                work()

        return run_piece

    read = None
    if context.times is not None and context.times.by_rows:
        read = _rows_read(server, current, operands, publications)
    jobs = []
    for place, piece in enumerate(server.pieces(step, current.interval, rows)):
        job = Job(step, current, place, piece.flops, piece.bytes, step.label, read)
        jobs.append((job, guarded(place, work_on(step, operands, rows, piece, results))))
    await server.compute_all(jobs)
    for one in found:
        server.recorder.read(server.shard.server, current, one)


def _rows_read(
    server: GraphServer,
    current: IntervalPass,
    operands: Sequence[tuple[Role, np.ndarray]],
    publications: Sequence[int],
) -> RowsRead | None:
    """Return the neighbors' rows that an operator reads: some rows of a buffer, or all rows of a copy."""
    arrays = [array for role, array in operands if role == "neighbour"]
    if not arrays:
        return None
    counts = [int(server.block_counts(number, current.interval).sum()) for number in publications]
    widths = [array.nbytes // max(1, len(array)) for array in arrays]
    number = max(counts, default=len(arrays[0]))
    return RowsRead(max(widths), number * sum(widths))


_READ, _SEND = -1, -2  # places of jobs other than pieces of the operator


async def _push(server: GraphServer, step: Step, current: IntervalPass) -> None:
    """Run a graph operator that sums, for each vertex, the values of its out-edges.

    The destinations' servers hold the values of edges. So each interval sums its in-edges per source. Its server adds up
    the sums of its intervals, and sends the sums of ghosts to their owners once per epoch. The owner of a vertex adds the
    newest sums of all intervals on its server and of every peer.
    """
    await _contribute(server, step, current)
    await _collect(server, step, current)


async def _contribute(server: GraphServer, step: Step, current: IntervalPass) -> None:
    """Sum the interval's in-edges per source, and send the sums that are complete then."""
    merge, transposed = server.merges[step.index], server.shard.transposed(current.interval)
    count = transposed.num_rows
    for operand in step.operands:
        if operand.publication is not None:
            await server.copy(operand.publication, step, current)
    operands = [(operand.role, server.operand(operand, current, copied=True)) for operand in step.operands]
    (partial,) = results_for(step, count, 0, 0, empty=server.context.empty)
    await _operate(server, step, current, operands, row_range(transposed, 0, count), results=[partial])
    await merge.publish(current.interval, partial, current.epoch)
    ghosts, epochs = merge.due(current.interval)
    if len(ghosts):
        await _send_sums(server, step, current, ghosts, epochs)


async def _collect(server: GraphServer, step: Step, current: IntervalPass) -> None:
    """Add the sums of all out-edges of the interval's vertices."""
    merge, (first, last) = server.merges[step.index], server.bounds(current)
    await server.wait_for(merge.stamps, current, lambda: merge.blocks_read(current.interval))
    (result,) = results_for(step, last - first, 0, server.context.sizes.vertices, empty=server.context.empty)

    def work() -> Reads:
        with merge.guard.reading():
            merge.own_sums(current.interval, result[: last - first])
            return merge.reads(current.interval)

    entries = merge.entries(current.interval)
    width = int(np.prod(result.shape[1:], dtype=int))
    job = Job(step, current, _READ, entries * width, entries * (width * result.itemsize + 4), step.label)
    server.recorder.read(server.shard.server, current, (await server.compute(job, work)).value)
    fill_padding([result], step, last - first)
    current.values[step.writes[0]] = result


async def _send_sums(
    server: GraphServer, step: Step, current: IntervalPass, ghosts: np.ndarray, epochs: np.ndarray
) -> None:
    """Send sums for ghosts to their owners."""
    merge, parts = server.merges[step.index], server.shard.merge()
    row_bytes = merge.rows[:1].nbytes

    def work() -> np.ndarray:
        with merge.guard.reading():
            return merge.ghost_sums(ghosts)

    job = Job(step, current, _SEND, 0, 2 * parts.stand_for(ghosts) * row_bytes, "∇SC")
    sums = (await server.compute(job, work)).value
    for peer, start, mine in server.owners_of(ghosts):
        rows = taken(sums, np.flatnonzero(mine))
        message = SumsMessage(step.index, ghosts[mine] - start, epochs[mine], rows, current.exact)
        order = (current.epoch, current.number, step.index, peer)
        await server.send(current, peer, message, order, num_bytes=parts.stand_for(ghosts[mine]) * row_bytes)


async def _stage(server: GraphServer, step: Step, current: IntervalPass) -> None:
    """Run a stage: all vertices of the interval in one call, its in-edges in chunks of a fixed size."""
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


async def _driver(server: GraphServer, step: Step, current: IntervalPass) -> None:
    """Run arithmetic without rows that depends on results of stages, on the graph server. This is rare."""
    results = server.functions[step.index](*map(current.value, step.reads))
    current.values.update(zip(step.writes, results, strict=True))


async def _total(server: GraphServer, step: Step, current: IntervalPass) -> None:
    """Complete sums over all rows: contribute the interval's part, and use the sum of all parts once they are new enough."""
    parts = server.parts[step.index]
    mine = tuple(np.asarray(current.value(var)) for equation in step.equations for var in variables(equation.invars))
    parts.write(np.array([current.number]), current.epoch, tuple(part[None] for part in mine))
    if len(server.peers):
        await _send_parts(server, step, current)
    await server.wait_for(parts.stamps, current, lambda: parts.blocks_read(current.number, server.intervals))
    server.recorder.read(server.shard.server, current, parts.reads(current.number))
    totals = {equation.outvars[0]: total for equation, total in zip(step.equations, parts.totals(), strict=True)}
    current.values.update((var, totals[var]) for var in step.writes)


async def _send_parts(server: GraphServer, step: Step, current: IntervalPass) -> None:
    """Send the interval's part immediately, so that asynchronous peers can read it as early as possible.

    In a synchronous epoch, the last interval of a server sends all parts of the server together.
    """
    parts, first = server.parts[step.index], server.first_interval
    places = np.array([current.number])
    if server.gate.allowance.required_row_epoch(current.epoch) == current.epoch:
        places = np.arange(first, first + server.num_intervals)
        if parts.stamps.epochs[places].min() < current.epoch:
            return  # the last interval of this server sends
    message = PartsMessage(step.index, places, current.epoch, parts.read(places))
    num_bytes = payload_bytes(message.rows)
    for peer in server.peers:
        order = (current.epoch, current.number, step.index, peer)
        await server.send(current, peer, message, order, num_bytes=num_bytes)


RUN: dict[str, Callable[[GraphServer, Step, IntervalPass], Awaitable[None]]] = {
    "stage": _stage,
    "gather": _gather,
    "push": _push,
    "driver": _driver,
    "sum": _total,
}
"""By `Step.kind`."""
