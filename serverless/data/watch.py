"""Monitor of a server's connections, based on ZeroMQ's events, that closes surplus connections."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import struct
import time
from typing import final

import zmq

from dorylax.serverless.data import admission
from dorylax.serverless.data.connections import AHEAD, Capacity, Connection, Connections
from dorylax.serverless.data.refusals import Refusals

_EVENT = struct.Struct("=Hi")  # event, and descriptor or error; faster than pyzmq's parser
_UNREAD_EVENTS = AHEAD - 1_000  # in this socket's queue; ZeroMQ queues the rest
_CLOSE_MS = 10_000


@final
class Watch:
    """Monitor of a server's sockets, used only by the data thread.

    ZeroMQ cannot close a single connection. The monitor calls `shutdown` on its socket instead, and ZeroMQ sees a
    disconnection by the peer. The descriptor may have been reused by then, so the monitor checks a duplicate of it first.

    Args:
        context: ZeroMQ context of the sockets.
        capacity: Limits of the connections.
        refusals: Recorder of refused peers.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], capacity: Capacity, refusals: Refusals) -> None:
        self._context = context
        self._refusals = refusals
        self._connections = Connections(capacity)
        self._monitors: dict[zmq.Socket[bytes], _Monitor] = {}
        # Reserve a descriptor now, because the process may have none left later.
        self._nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._duplicate = os.dup(self._nothing)

    def start(self, router: zmq.Socket[bytes], label: str, address: str) -> zmq.Socket[bytes]:
        """Watch a bound socket, and return its monitor socket for `read`."""
        name = f"inproc://monitor {len(self._monitors)}"
        router.monitor(name, admission.EVENTS)
        monitor = self._context.socket(zmq.PAIR)
        monitor.rcvhwm = _UNREAD_EVENTS
        monitor.connect(name)
        self._monitors[monitor] = _Monitor(label, address)
        return monitor

    def read(self, monitor: zmq.Socket[bytes]) -> None:
        """Process one event.

        Raises:
            zmq.Again: If no event is pending.
        """
        event, value = _EVENT.unpack(monitor.recv_multipart(zmq.NOBLOCK)[0])
        watched = self._monitors[monitor]
        if event == zmq.EVENT_ACCEPTED:
            self._connections.accepted(Connection(value, watched.address), time.monotonic())
        elif event == zmq.EVENT_DISCONNECTED:
            self._connections.ended(Connection(value, watched.address))
        reason = watched.handshakes.tell(event, value)
        if reason is not None:
            self._refusals.add(watched.label, reason)

    def heard(self, monitor: zmq.Socket[bytes], frame: zmq.Frame) -> None:
        """Record that a peer has sent this frame to a monitored socket."""
        with contextlib.suppress(zmq.Again):
            for _ in range(AHEAD):  # the pending events include the one of the peer's connection
                self.read(monitor)
        with contextlib.suppress(zmq.ZMQError):  # an unknown connection counts as silent
            self._connections.heard(Connection(int(frame.get(zmq.SRCFD)), self._monitors[monitor].address))

    def cut_surplus(self) -> None:
        """Close surplus connections."""
        strangers, peers = self._connections.surplus(time.monotonic())
        for connection in strangers:  # the event of the failed handshake reports them
            self._cut(connection)
        for connection in peers:
            self._cut(connection)
            self._refusals.add(
                connection.address, "too many connections with the run's key: the most silent one is cut"
            )

    def close(self) -> None:
        """Drain the events of closed sockets, and stop.

        Unread events would block ZeroMQ's thread and the termination of its context.
        """
        poller = zmq.Poller()
        for monitor in self._monitors:
            poller.register(monitor, zmq.POLLIN)
        while self._monitors and (ready := poller.poll(_CLOSE_MS)):
            for monitor, _ in ready:
                if _EVENT.unpack(monitor.recv_multipart()[0])[0] == zmq.EVENT_MONITOR_STOPPED:
                    poller.unregister(monitor)
                    del self._monitors[monitor]
                    monitor.close(linger=0)
        for monitor in self._monitors:
            monitor.close(linger=0)
        os.close(self._duplicate)
        os.close(self._nothing)

    def _cut(self, connection: Connection) -> None:
        with contextlib.suppress(OSError):  # already closed
            os.dup2(connection.descriptor, self._duplicate, inheritable=False)
            try:
                _shut_down(self._duplicate, connection.address)
            finally:
                os.dup2(self._nothing, self._duplicate, inheritable=False)


@final
@dataclasses.dataclass(eq=False)
class _Monitor:
    """A watched socket."""

    label: str
    address: str
    handshakes: admission.Handshakes = dataclasses.field(default_factory=admission.Handshakes)


def _shut_down(descriptor: int, address: str) -> None:
    """Shut down a socket if an address accepted it."""
    found = socket.socket(fileno=descriptor)
    try:
        local = found.getsockname()
        mine = f"ipc://{local}" == address if found.family == socket.AF_UNIX else address.endswith(f":{local[1]}")
        if mine:
            found.shutdown(socket.SHUT_RDWR)
    finally:
        found.detach()
