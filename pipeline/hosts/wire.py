"""The transport of a run's processes."""

from __future__ import annotations

from dorylax.clock import Clock
from dorylax.pipeline.hosts.spec import RunSpec
from dorylax.pipeline.transport.zeromq import ZeroMqTransport


def transport_of(run: RunSpec, clock: Clock) -> ZeroMqTransport:
    """Makes that of this process, on the loop of its clock.

    Args:
        run: what all of them know.
        clock: of the process.
    """
    return ZeroMqTransport(
        run.keys, run.transport, host=run.host, folder=run.sockets, codec=run.codec(), spawn=clock.spawn
    )
