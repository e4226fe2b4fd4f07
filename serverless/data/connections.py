"""Tracks connected peers, and chooses connections to close above the limits of this process. Without sockets."""

from __future__ import annotations

import resource
from collections import OrderedDict
from typing import NamedTuple, final

HANDSHAKE_SECONDS = 10.0
"""Time limit of ZeroMQ for a handshake; a worker needs three round trips."""

AHEAD = 1_001
"""Limit of connections that ZeroMQ accepts before this process reads their events: ZeroMQ then waits."""

_MOST_STRANGERS = 256
_FORGIVEN_SECONDS = 1.0
"""Tolerance between ZeroMQ's clock and ours, and between an event and its reading."""

_MOST_DESCRIPTORS = 65_536
"""Largest raised limit. Hard limits may be in the billions, and some programs iterate over all descriptors."""


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
    """All connections of a server, over all of its endpoints.

    A connection is a *stranger* until its first message, or for `HANDSHAKE_SECONDS`, which only authenticated peers
    survive. Above the limit the oldest strangers are closed; a worker's handshake takes milliseconds, so it succeeds even in
    a flood. Above the limit of peers the longest silent ones are closed; an idle worker reconnects.

    Args:
        capacity: Limits of connections.
    """

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity
        self._strangers: OrderedDict[int, tuple[str, float]] = (
            OrderedDict()
        )  # descriptor -> address, time of acceptance
        self._peers: OrderedDict[int, str] = OrderedDict()  # longest silent first

    def __len__(self) -> int:
        return len(self._strangers) + len(self._peers)

    def accepted(self, connection: Connection, now: float) -> None:
        """Record a new connection, which replaces an earlier one with the same descriptor."""
        descriptor, address = connection
        self._forget(descriptor)
        self._strangers[descriptor] = address, now

    def heard(self, connection: Connection) -> None:
        """Record a message."""
        descriptor, address = connection
        if self._address(descriptor) == address:
            self._forget(descriptor)
            self._peers[descriptor] = address

    def ended(self, connection: Connection) -> None:
        """Record a closed connection. Events of two endpoints may arrive out of order."""
        if self._address(connection.descriptor) == connection.address:
            self._forget(connection.descriptor)

    def surplus(self, now: float) -> tuple[list[Connection], list[Connection]]:
        """Remove and return the surplus strangers and peers."""
        strangers, peers = [], []
        if len(self._strangers) > self._capacity.strangers:
            self._introduce(now)
        while len(self._strangers) > self._capacity.strangers:
            descriptor, (address, _) = self._strangers.popitem(last=False)
            strangers.append(Connection(descriptor, address))
        while len(self._peers) > self._capacity.peers:
            peers.append(Connection(*self._peers.popitem(last=False)))
        return strangers, peers

    def _introduce(self, now: float) -> None:
        """Move strangers to the peers once their handshake must have succeeded."""
        known = []
        for descriptor, (address, since) in self._strangers.items():
            if now - since < HANDSHAKE_SECONDS + _FORGIVEN_SECONDS:
                break
            known.append((descriptor, address))
        for descriptor, address in reversed(known):
            del self._strangers[descriptor]
            self._peers[descriptor] = address
            self._peers.move_to_end(descriptor, last=False)

    def _address(self, descriptor: int) -> str | None:
        if descriptor in self._strangers:
            return self._strangers[descriptor][0]
        return self._peers.get(descriptor)

    def _forget(self, descriptor: int) -> None:
        self._strangers.pop(descriptor, None)
        self._peers.pop(descriptor, None)
