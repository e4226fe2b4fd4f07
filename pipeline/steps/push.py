"""Operators that sum, for each vertex, what its out-edges hold.

What edges hold lies with their destinations. So each interval sums its in-edges per source; its server adds these sums up
over its intervals, and sends those of ghosts to their owners, once per epoch; the owner adds up all that it has. An owner
of vertices thus reads, for each of them, the newest sum of every interval of its own and of every peer.
"""

from __future__ import annotations

import numpy as np

from dorylax.abstract_array import taken
from dorylax.pipeline.buffers import Reads
from dorylax.pipeline.graph_server import GraphServer, Job
from dorylax.pipeline.messages import SumsMessage
from dorylax.pipeline.operators import fill_padding, results_for, row_range
from dorylax.pipeline.plan import Step
from dorylax.pipeline.steps.gather import Reading, operate
from dorylax.pipeline.visit import Visit

_READ, _SEND = -1, -2  # places of jobs that are no pieces of the operator


async def run(server: GraphServer, step: Step, visit: Visit) -> None:
    """See `RunStep`."""
    await _contribute(server, step, visit)
    await _collect(server, step, visit)


async def _contribute(server: GraphServer, step: Step, visit: Visit) -> None:
    """Sums the interval's in-edges per source, and sends what is complete with them."""
    merge, transposed = server.merges[step.index], server.shard.transposed(visit.interval)
    count = transposed.num_rows
    for operand in step.operands:
        if operand.publication is not None:
            await server.copy(operand.publication, step, visit)
    operands = [(operand.role, server.operand(operand, visit, copied=True)) for operand in step.operands]
    (partial,) = results_for(step, count, 0, 0, empty=server.context.empty)
    await operate(server, step, visit, Reading(operands, row_range(transposed, 0, count)), [partial])
    await merge.publish(visit.interval, partial, visit.epoch)
    ghosts, epochs = merge.due(visit.interval)
    if len(ghosts):
        await _send(server, step, visit, ghosts, epochs)


async def _collect(server: GraphServer, step: Step, visit: Visit) -> None:
    """Adds up what all in-edges from the interval's vertices hold."""
    merge, (first, last) = server.merges[step.index], server.bounds(visit)
    await server.wait_for(merge.stamps, visit, lambda: merge.blocks_read(visit.interval))
    (result,) = results_for(step, last - first, 0, server.context.sizes.vertices, empty=server.context.empty)

    def work() -> Reads:
        with merge.guard.reading():
            merge.own_sums(visit.interval, result[: last - first])
            return merge.reads(visit.interval)

    entries = merge.entries(visit.interval)
    width = int(np.prod(result.shape[1:], dtype=int))
    job = Job(step, visit, _READ, entries * width, entries * (width * result.itemsize + 4), step.label)
    server.recorder.read(server.shard.server, visit, (await server.compute(job, work)).value)
    fill_padding([result], step, last - first)
    visit.values[step.writes[0]] = result


async def _send(server: GraphServer, step: Step, visit: Visit, ghosts: np.ndarray, epochs: np.ndarray) -> None:
    """Sends sums for ghosts to their owners."""
    merge, parts = server.merges[step.index], server.shard.merge()
    row_bytes = merge.rows[:1].nbytes

    def work() -> np.ndarray:
        with merge.guard.reading():
            return merge.ghost_sums(ghosts)

    job = Job(step, visit, _SEND, 0, 2 * parts.stand_for(ghosts) * row_bytes, "∇SC")
    sums = (await server.compute(job, work)).value
    for peer, start, mine in server.owners_of(ghosts):
        rows = taken(sums, np.flatnonzero(mine))
        message = SumsMessage(step.index, ghosts[mine] - start, epochs[mine], rows, visit.exact)
        order = (visit.epoch, visit.number, step.index, peer)
        await server.send(visit, peer, message, order, num_bytes=parts.stand_for(ghosts[mine]) * row_bytes)
