"""Watches the connections of a server by ZeroMQ's events, and cuts those that are too many."""

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

_EVENT = struct.Struct("=Hi")  # its number, and a descriptor or an error; pyzmq's own reader makes enumerations of both
_UNREAD_EVENTS = AHEAD - 1_000  # on our side; the rest wait on ZeroMQ's
_CLOSE_MS = 10_000


@final
class Watch:
    """The events of a server's sockets; used by the data thread alone.

    ZeroMQ has no call that ends one connection of many, so its socket is shut down (`shutdown`), which ZeroMQ takes for the
    peer's end. The descriptor may be another file's by then: it is looked at first, by a duplicate that cannot change.

    Args:
        context: of the sockets.
        capacity: how many connections there may be.
        refusals: where peers that are turned away are reported.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], capacity: Capacity, refusals: Refusals) -> None:
        self._context = context
        self._refusals = refusals
        self._connections = Connections(capacity)
        self._monitors: dict[zmq.Socket[bytes], _Monitor] = {}
        # Taken now, because there may be no descriptor left when one is needed.
        self._nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._duplicate = os.dup(self._nothing)

    def start(self, router: zmq.Socket[bytes], label: str, address: str) -> zmq.Socket[bytes]:
        """Watches a socket that is bound to an address; gives what `read` is to be called for when there is something."""
        name = f"inproc://monitor {len(self._monitors)}"
        router.monitor(name, admission.EVENTS)
        monitor = self._context.socket(zmq.PAIR)
        monitor.rcvhwm = _UNREAD_EVENTS
        monitor.connect(name)
        self._monitors[monitor] = _Monitor(label, address)
        return monitor

    def read(self, monitor: zmq.Socket[bytes]) -> None:
        """Reads one event.

        Raises:
            zmq.Again: there is none.
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
        """A message has come, of which this is a frame, through the socket that is watched by this one."""
        with contextlib.suppress(zmq.Again):
            for _ in range(AHEAD):  # among those that wait is the event of its connection
                self.read(monitor)
        with contextlib.suppress(zmq.ZMQError):  # a frame that does not know its connection: that one counts as silent
            self._connections.heard(Connection(int(frame.get(zmq.SRCFD)), self._monitors[monitor].address))

    def cut_surplus(self) -> None:
        """Cuts connections that are too many."""
        strangers, peers = self._connections.surplus(time.monotonic())
        for connection in strangers:  # ZeroMQ tells that their handshakes have failed: they are reported then
            self._cut(connection)
        for connection in peers:
            self._cut(connection)
            self._refusals.add(
                connection.address, "too many connections with the run's key: the most silent one is cut"
            )

    def close(self) -> None:
        """Reads what is still said about sockets that have been closed, and stops.

        ZeroMQ's thread waits for its events to be read: unread ones would keep it, and the context, from ending.
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
        with contextlib.suppress(OSError):  # it has ended meanwhile
            os.dup2(connection.descriptor, self._duplicate, inheritable=False)
            try:
                _shut_down(self._duplicate, connection.address)
            finally:
                os.dup2(self._nothing, self._duplicate, inheritable=False)


@final
@dataclasses.dataclass(eq=False)
class _Monitor:
    """What is watched."""

    label: str
    address: str
    handshakes: admission.Handshakes = dataclasses.field(default_factory=admission.Handshakes)


def _shut_down(descriptor: int, address: str) -> None:
    """Shuts a socket down, if it is one that was accepted at an address."""
    found = socket.socket(fileno=descriptor)
    try:
        local = found.getsockname()
        mine = f"ipc://{local}" == address if found.family == socket.AF_UNIX else address.endswith(f":{local[1]}")
        if mine:
            found.shutdown(socket.SHUT_RDWR)
    finally:
        found.detach()
