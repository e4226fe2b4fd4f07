"""Sums over all rows: each interval contributes its part, and uses the sum of all parts once they are new enough.

In a synchronous epoch, the last interval of a server sends all parts of the server together. In an asynchronous epoch, each
interval sends its part immediately, so that the others can read it as early as possible.
"""

from __future__ import annotations

import numpy as np

from dorylax.jax_internals import variables
from dorylax.pipeline.graph_server import GraphServer
from dorylax.pipeline.interval_pass import IntervalPass
from dorylax.pipeline.messages import PartsMessage
from dorylax.pipeline.transport import payload_bytes
from dorylax.program.tasks.steps import Step


async def run(server: GraphServer, step: Step, current: IntervalPass) -> None:
    """Complete sums."""
    parts = server.parts[step.index]
    mine = tuple(np.asarray(current.value(var)) for equation in step.equations for var in variables(equation.invars))
    parts.write(np.array([current.number]), current.epoch, tuple(part[None] for part in mine))
    if len(server.peers):
        await _send(server, step, current)
    await server.wait_for(parts.stamps, current, lambda: parts.blocks_read(current.number, server.intervals))
    server.recorder.read(server.shard.server, current, parts.reads(current.number))
    totals = {equation.outvars[0]: total for equation, total in zip(step.equations, parts.totals(), strict=True)}
    current.values.update((var, totals[var]) for var in step.writes)


async def _send(server: GraphServer, step: Step, current: IntervalPass) -> None:
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
