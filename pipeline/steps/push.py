"""Graph operators that sum, for each vertex, the values of its out-edges.

The destinations' servers hold the values of edges. So each interval sums its in-edges per source. Its server adds up the
sums of its intervals, and sends the sums of ghosts to their owners once per epoch. The owner of a vertex adds the newest
sums of all intervals on its server and of every peer.
"""

from __future__ import annotations

import numpy as np

from dorylax.abstract_array import taken
from dorylax.pipeline.buffers import Reads
from dorylax.pipeline.graph_server import GraphServer, Job
from dorylax.pipeline.interval_pass import IntervalPass
from dorylax.pipeline.messages import SumsMessage
from dorylax.pipeline.operators import fill_padding, results_for, row_range
from dorylax.pipeline.steps.gather import operate
from dorylax.program.tasks.steps import Step

_READ, _SEND = -1, -2  # places of jobs other than pieces of the operator


async def run(server: GraphServer, step: Step, current: IntervalPass) -> None:
    """Run a push."""
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
    await operate(server, step, current, operands, row_range(transposed, 0, count), results=[partial])
    await merge.publish(current.interval, partial, current.epoch)
    ghosts, epochs = merge.due(current.interval)
    if len(ghosts):
        await _send(server, step, current, ghosts, epochs)


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


async def _send(server: GraphServer, step: Step, current: IntervalPass, ghosts: np.ndarray, epochs: np.ndarray) -> None:
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
