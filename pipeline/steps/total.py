"""Sums over all rows: each interval gives its part, and takes the sum of all parts once these are as new as they must be.

In a synchronous epoch the parts of a server travel together, when the last of its intervals has given its own; in an
asynchronous one each at once, so that others read it as early as they can.
"""

from __future__ import annotations

import numpy as np

from dorylax.jax_internals import variables
from dorylax.pipeline.graph_server import GraphServer
from dorylax.pipeline.messages import PartsMessage
from dorylax.pipeline.transport import payload_bytes
from dorylax.pipeline.visit import Visit
from dorylax.program.tasks.steps import Step


async def run(server: GraphServer, step: Step, visit: Visit) -> None:
    """See `RunStep`."""
    parts = server.parts[step.index]
    mine = tuple(np.asarray(visit.value(var)) for equation in step.equations for var in variables(equation.invars))
    parts.write(np.array([visit.number]), visit.epoch, tuple(part[None] for part in mine))
    if len(server.peers):
        await _send(server, step, visit)
    await server.wait_for(parts.stamps, visit, lambda: parts.blocks_read(visit.number, server.intervals))
    server.recorder.read(server.shard.server, visit, parts.reads(visit.number))
    totals = {equation.outvars[0]: total for equation, total in zip(step.equations, parts.totals(), strict=True)}
    visit.values.update((var, totals[var]) for var in step.writes)


async def _send(server: GraphServer, step: Step, visit: Visit) -> None:
    parts, first = server.parts[step.index], server.first_interval
    places = np.array([visit.number])
    if server.gate.allowance.required_row_epoch(visit.epoch) == visit.epoch:
        places = np.arange(first, first + server.num_intervals)
        if parts.stamps.epochs[places].min() < visit.epoch:
            return  # another interval of this server is the last
    message = PartsMessage(step.index, places, visit.epoch, parts.read(places))
    num_bytes = payload_bytes(message.rows)
    for peer in server.peers:
        order = (visit.epoch, visit.number, step.index, peer)
        await server.send(visit, peer, message, order, num_bytes=num_bytes)
