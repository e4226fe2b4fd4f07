"""Limits of the connections of a process, and a monitor of its sockets, based on ZeroMQ's events, that cuts the surplus."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import struct
import time
from typing import NamedTuple, final

import zmq

from dorylax.net.errors import Refusals

HANDSHAKE_SECONDS = 10.0
"""Time limit of ZeroMQ for a handshake; a worker needs three round trips."""

AHEAD = 1_001
"""Limit of connections that ZeroMQ accepts before this process reads their events: ZeroMQ then waits."""

_MOST_STRANGERS = 256
_FORGIVEN_SECONDS = 1.0
"""Tolerance between ZeroMQ's clock and ours, and between an event and its reading."""

_MOST_DESCRIPTORS = 65_536
"""Largest raised limit. Hard limits may be in the billions, and some programs iterate over all descriptors."""

_EVENT = struct.Struct("=Hi")  # event, and descriptor or error; faster than pyzmq's parser
_UNREAD_EVENTS = AHEAD - 1_000  # in this socket's queue; ZeroMQ queues the rest
_CLOSE_MS = 10_000
_FAILURES = (zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
_EVENTS = (
    zmq.EVENT_ACCEPTED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_MONITOR_STOPPED
)


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard limit, but at most 65,536; return the resulting limit.

    Later child processes inherit the limit. A second call does nothing.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MOST_DESCRIPTORS
    wanted = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft >= wanted:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (ValueError, OSError):  # macOS enforces a lower limit than its "unlimited" hard limit
        return soft
    return wanted


class Connection(NamedTuple):
    """An accepted connection.

    Attributes:
        descriptor: File descriptor of its socket.
        address: Address of the accepting endpoint.
    """

    descriptor: int
    address: str


class Capacity(NamedTuple):
    """Shares of a process's descriptors.

    Half are reserved for files and pipes. ZeroMQ accepts every connection, and the surplus is closed a moment later, so an
    endpoint may briefly exceed the limit by `AHEAD` connections in a flood.

    Attributes:
        strangers: Limit of connections before their first message.
        peers: Limit of connections after it.
        others: Descriptors for other uses.
    """

    strangers: int
    peers: int
    others: int

    @classmethod
    def of(cls, limit: int) -> Capacity:
        """Return the shares of a process with `limit` descriptors."""
        most = limit // 2
        strangers = max(1, min(_MOST_STRANGERS, most // 8))
        return cls(strangers, max(1, most - strangers), limit - most)


@final
class Connections:
    """All connections to the sockets of a process. Without sockets.

    A connection is a *stranger* until its first message, or for `HANDSHAKE_SECONDS`, which only authenticated peers
    survive. Above the limit the oldest strangers are closed; a worker's handshake takes milliseconds, so it succeeds even in
    a flood. Above the limit of peers the longest silent ones are closed; an idle worker reconnects.

    Args:
        capacity: Limits of connections.
    """

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity
        self._strangers: dict[int, tuple[str, float]] = {}  # descriptor -> address, time of acceptance; oldest first
        self._peers: dict[int, str] = {}  # longest silent first

    def __len__(self) -> int:
        return len(self._strangers) + len(self._peers)

    def accepted(self, connection: Connection, now: float) -> None:
        """Record a new connection, which replaces an earlier one with the same descriptor."""
        descriptor, address = connection
        self._forget(descriptor)
        self._strangers[descriptor] = address, now

    def heard(self, connection: Connection) -> None:
        """Record a message."""
        if self._knows(connection):
            self._forget(connection.descriptor)
            self._peers[connection.descriptor] = connection.address

    def ended(self, connection: Connection) -> None:
        """Record a closed connection. Events of two endpoints may arrive out of order."""
        if self._knows(connection):
            self._forget(connection.descriptor)

    def surplus(self, now: float) -> tuple[list[Connection], list[Connection]]:
        """Remove and return the surplus strangers and peers."""
        if len(self._strangers) > self._capacity.strangers:  # move those to the peers whose handshake has succeeded
            until = now - HANDSHAKE_SECONDS - _FORGIVEN_SECONDS
            known = {one: address for one, (address, since) in self._strangers.items() if since <= until}
            self._strangers = {one: found for one, found in self._strangers.items() if one not in known}
            self._peers = known | self._peers
        strangers = list(self._strangers)[: max(0, len(self._strangers) - self._capacity.strangers)]
        peers = list(self._peers)[: max(0, len(self._peers) - self._capacity.peers)]
        return (
            [Connection(one, self._strangers.pop(one)[0]) for one in strangers],
            [Connection(one, self._peers.pop(one)) for one in peers],
        )

    def _knows(self, connection: Connection) -> bool:
        descriptor, address = connection
        stranger = self._strangers.get(descriptor)
        return (self._peers.get(descriptor) if stranger is None else stranger[0]) == address

    def _forget(self, descriptor: int) -> None:
        self._strangers.pop(descriptor, None)
        self._peers.pop(descriptor, None)


@final
class Handshakes:
    """Detects from a socket's events that a peer was refused before its first message.

    Refusals by `keys.answer` are not reported again.

    Args:
        label: Name of the socket in the log.
        address: Address of the socket.
    """

    def __init__(self, label: str, address: str) -> None:
        self.label, self.address = label, address
        self._outcomes = 0
        self._accepted: dict[int, int] = {}  # file descriptor -> number of outcomes at its acceptance

    def tell(self, event: int, value: int) -> str | None:
        """Return the reason of a refusal if this event shows one.

        Args:
            event: ZeroMQ's number of the event.
            value: Value of the event: a file descriptor for connections.
        """
        if event == zmq.EVENT_ACCEPTED:
            self._accepted[value] = self._outcomes
        elif event == zmq.EVENT_DISCONNECTED:
            # Handshake events name no peer. Without one since this peer's acceptance, its handshake has not ended.
            if self._accepted.pop(value, -1) == self._outcomes:
                return "a peer that left before it had introduced itself, or one of another kind"
        else:
            self._outcomes += 1
            if event in _FAILURES:
                return "a peer that has no credentials of this run, or another mechanism"
        return None


@final
class Watch:
    """Monitor of bound sockets, used only by their thread.

    ZeroMQ cannot close a single connection. The monitor calls `shutdown` on its socket instead, and ZeroMQ sees a
    disconnection by the peer. The descriptor may have been reused by then, so the monitor checks a duplicate of it first.

    Args:
        context: ZeroMQ context of the sockets.
        refusals: Recorder of refused peers.

    Attributes:
        connections: All connections.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], refusals: Refusals) -> None:
        self._context, self._refusals = context, refusals
        self.connections = Connections(Capacity.of(raise_limit()))
        self._monitors: dict[zmq.Socket[bytes], Handshakes] = {}
        # Reserve a descriptor now, because the process may have none left later.
        self._nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._duplicate = os.dup(self._nothing)

    def start(self, router: zmq.Socket[bytes], label: str, address: str) -> zmq.Socket[bytes]:
        """Watch a bound socket, and return its monitor socket for `read`."""
        name = f"inproc://monitor {len(self._monitors)}"
        router.monitor(name, _EVENTS)
        monitor = self._context.socket(zmq.PAIR)
        monitor.rcvhwm = _UNREAD_EVENTS
        monitor.connect(name)
        self._monitors[monitor] = Handshakes(label, address)
        return monitor

    def read(self, monitor: zmq.Socket[bytes]) -> None:
        """Process one event.

        Raises:
            zmq.Again: If no event is pending.
        """
        event, value = _EVENT.unpack(monitor.recv_multipart(zmq.NOBLOCK)[0])
        watched = self._monitors[monitor]
        if event == zmq.EVENT_ACCEPTED:
            self.connections.accepted(Connection(value, watched.address), time.monotonic())
        elif event == zmq.EVENT_DISCONNECTED:
            self.connections.ended(Connection(value, watched.address))
        reason = watched.tell(event, value)
        if reason is not None:
            self._refusals.add(watched.label, reason)

    def heard(self, monitor: zmq.Socket[bytes], frame: zmq.Frame) -> None:
        """Record that a peer has sent this frame to a monitored socket."""
        with contextlib.suppress(zmq.Again):
            for _ in range(AHEAD):  # the pending events include the one of the peer's connection
                self.read(monitor)
        with contextlib.suppress(zmq.ZMQError):  # an unknown connection counts as silent
            self.connections.heard(Connection(int(frame.get(zmq.SRCFD)), self._monitors[monitor].address))

    def cut_surplus(self) -> None:
        """Close surplus connections."""
        strangers, peers = self.connections.surplus(time.monotonic())
        for connection in (*strangers, *peers):  # the event of the failed handshake reports strangers
            self._cut(connection)
        for connection in peers:
            reason = "too many connections with the run's key: the most silent one is cut"
            self._refusals.add(connection.address, reason)

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
