"""Creates the transport of a host."""

from __future__ import annotations

from dorylax.clock import Clock
from dorylax.pipeline.hosts.spec import RunSpec
from dorylax.pipeline.transport.zeromq import ZeroMqTransport


def transport_of(run: RunSpec, clock: Clock) -> ZeroMqTransport:
    """Create the transport of this process, on the loop of its clock.

    Args:
        run: Settings shared by all hosts.
        clock: Clock of the process.
    """
    return ZeroMqTransport(
        run.keys, run.transport, host=run.host, folder=run.sockets, codec=run.codec(), spawn=clock.spawn
    )
