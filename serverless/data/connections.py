"""Who is connected, and who has to go when there are too many. No sockets here."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple, final

HANDSHAKE_SECONDS = 10.0
"""ZeroMQ closes a connection whose peer has not introduced itself by then: a worker takes three round trips."""

AHEAD = 1_001
"""Connections of an endpoint that ZeroMQ may have accepted before we read of the first: it waits when so many events do."""

_MOST_STRANGERS = 256
_FORGIVEN_SECONDS = 1.0
"""By which ZeroMQ's clock and ours, or its event and our reading of it, may differ."""


class Connection(NamedTuple):
    """One that was accepted.

    Attributes:
        descriptor: of its socket.
        address: of the endpoint that accepted it.
    """

    descriptor: int
    address: str


class Capacity(NamedTuple):
    """How the descriptors of a process are shared out.

    Half are kept for whatever else it opens: files of checkpoints, pipes to workers. ZeroMQ accepts whoever connects, and
    the surplus is cut a moment later, so in a flood an endpoint may have up to `AHEAD` connections more for that moment.

    Attributes:
        strangers: connections that have said nothing yet, at a time.
        peers: of those that have.
        others: descriptors of other things.
    """

    strangers: int
    peers: int
    others: int

    @classmethod
    def of(cls, limit: int) -> Capacity:
        """The shares of a process that may have `limit` descriptors."""
        most = limit // 2
        strangers = max(1, min(_MOST_STRANGERS, most // 8))
        return cls(strangers, max(1, most - strangers), limit - most)


@final
class Connections:
    """All connections of a server, however many endpoints it has.

    A connection is a *stranger* until a message has come from it or `HANDSHAKE_SECONDS` have passed, since without
    credentials it would not have lasted. Of too many strangers the oldest go: a worker needs milliseconds for its
    handshake, so it gets in however many wait. Of too many peers those go that were silent longest; a worker that idles
    connects again.

    Args:
        capacity: how many there may be.
    """

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity
        self._strangers: OrderedDict[int, tuple[str, float]] = OrderedDict()  # by descriptor: address, since when
        self._peers: OrderedDict[int, str] = OrderedDict()  # who was silent longest comes first

    def __len__(self) -> int:
        return len(self._strangers) + len(self._peers)

    def accepted(self, connection: Connection, now: float) -> None:
        """A peer has connected. What had the same descriptor before is gone."""
        descriptor, address = connection
        self._forget(descriptor)
        self._strangers[descriptor] = address, now

    def heard(self, connection: Connection) -> None:
        """A message has come."""
        descriptor, address = connection
        if self._address(descriptor) == address:
            self._forget(descriptor)
            self._peers[descriptor] = address

    def ended(self, connection: Connection) -> None:
        """A connection is closed. Events of two endpoints may come in another order than they happened in."""
        if self._address(connection.descriptor) == connection.address:
            self._forget(connection.descriptor)

    def surplus(self, now: float) -> tuple[list[Connection], list[Connection]]:
        """The strangers and the peers that are too many; they are forgotten."""
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
        """Counts strangers as peers, silent ones, whose handshakes must have succeeded."""
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
