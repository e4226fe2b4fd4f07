"""Watches the connections of a server through ZeroMQ's events, and closes surplus ones."""

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

_EVENT = struct.Struct("=Hi")  # event, descriptor or error; pyzmq's reader is slower
_UNREAD_EVENTS = AHEAD - 1_000  # on this side; the rest waits in ZeroMQ
_CLOSE_MS = 10_000


@final
class Watch:
    """The events of a server's sockets; used only by the data thread.

    ZeroMQ cannot close a single connection, so the watch shuts down its socket (`shutdown`), and ZeroMQ handles this like a
    disconnection by the peer. The descriptor may belong to another file by then, so it is first checked on a duplicate.

    Args:
        context: Context of the sockets.
        capacity: Limits of connections.
        refusals: Receives refused peers.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], capacity: Capacity, refusals: Refusals) -> None:
        self._context = context
        self._refusals = refusals
        self._connections = Connections(capacity)
        self._monitors: dict[zmq.Socket[bytes], _Monitor] = {}
        # Reserved now, because no descriptor may be free later.
        self._nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._duplicate = os.dup(self._nothing)

    def start(self, router: zmq.Socket[bytes], label: str, address: str) -> zmq.Socket[bytes]:
        """Watch a bound socket; return the monitor socket whose events `read` processes."""
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
            zmq.Again: No event is pending.
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
        """Record a message with this frame on the socket of a monitor."""
        with contextlib.suppress(zmq.Again):
            for _ in range(AHEAD):  # the event of its connection is among the pending ones
                self.read(monitor)
        with contextlib.suppress(zmq.ZMQError):  # without a known connection the peer counts as silent
            self._connections.heard(Connection(int(frame.get(zmq.SRCFD)), self._monitors[monitor].address))

    def cut_surplus(self) -> None:
        """Close surplus connections."""
        strangers, peers = self._connections.surplus(time.monotonic())
        for connection in strangers:  # reported by the event of their failed handshake
            self._cut(connection)
        for connection in peers:
            self._cut(connection)
            self._refusals.add(
                connection.address, "too many connections with the run's key: the most silent one is cut"
            )

    def close(self) -> None:
        """Drain the events of closed sockets, and stop.

        Unread events would block ZeroMQ's thread and the end of its context.
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
