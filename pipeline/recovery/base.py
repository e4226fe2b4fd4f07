"""The contract of recovery policies: pure decisions about which host runs which servers after hosts vanish or join.

A policy sees the fleet and one event, and returns a `Decision` with its reason. It starts nothing and waits for nothing:
`pipeline.hosts.coordinator` carries decisions out on processes and on Ray, and `dorylax.simulation.preemption` on the
virtual clock. Intervals stay with their graph server, and graph servers keep the order of their sums. A decision only moves
servers between hosts, so synchronous results do not depend on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol

Server = tuple[Literal["graph", "parameter"], int]
"""Role and number of a server."""
Assignment = tuple[tuple[Server, ...], ...]
"""Servers of each host; a vacant host has none."""


class Lost(NamedTuple):
    """Hosts vanished without a notice, or at the end of one."""

    hosts: tuple[int, ...]


class Noticed(NamedTuple):
    """Hosts will vanish after some seconds: two minutes on AWS, half a minute elsewhere."""

    hosts: tuple[int, ...]
    seconds: float


class Joined(NamedTuple):
    """Hosts that a decision started are ready, and run no server yet."""

    hosts: tuple[int, ...]


class EpochEnded(NamedTuple):
    """Every interval has finished the epoch, so that servers can move without loss."""


Event = Lost | Noticed | Joined | EpochEnded


class Fleet(NamedTuple):
    """The hosts of a run when an event arrives.

    Attributes:
        home: Servers of each host at the start of the run, to which policies return.
        assigned: Servers of each host now, including those of hosts that the event reports lost.
        alive: Hosts that run, including those with a notice.
        leaving: Hosts with a notice.
        starting: Hosts that a decision started and that have not joined.
        shadows: Host of the shadow of each graph server, for servers that have one in this epoch.
        training: Whether an epoch is unfinished.
        synchronous: Whether all rows that this epoch reads come from it.
        checkpoint: Whether the run has a checkpoint.
    """

    home: Assignment
    assigned: Assignment
    alive: frozenset[int]
    leaving: frozenset[int] = frozenset()
    starting: frozenset[int] = frozenset()
    shadows: Mapping[Server, int] = MappingProxyType({})
    training: bool = True
    synchronous: bool = True
    checkpoint: bool = False

    @property
    def staying(self) -> list[int]:
        """Hosts that run and have no notice, in ascending order."""
        return sorted(self.alive - self.leaving)

    @property
    def vacant(self) -> tuple[int, ...]:
        """Hosts that neither run nor start."""
        return tuple(sorted(set(range(len(self.home))) - self.alive - self.starting))


class Decision(NamedTuple):
    """What a policy decides on an event.

    Attributes:
        action: "go on": servers stay where they are. "take over": the shadows of lost servers finish the epoch.
            "move": a new generation of servers begins where `assigned` says.
        reason: Why, for the log and the trace.
        assigned: Servers of each host from now on.
        start: Hosts to start; some may be starting already.
        wait: Whether to wait for them first. Otherwise they join later.
        since: State from which "move" continues: the newest version, or the newest checkpoint.
    """

    action: Literal["go on", "take over", "move"]
    reason: str
    assigned: Assignment
    start: tuple[int, ...] = ()
    wait: bool = False
    since: Literal["version", "checkpoint"] = "version"


class Policy(Protocol):
    """A recovery policy.

    Attributes:
        name: Name in settings.
        keeps_shadows: Whether every graph server has a shadow on another host.
    """

    name: str
    keeps_shadows: bool

    def decide(self, fleet: Fleet, event: Event) -> Decision:
        """Answer an event; a pure function.

        Args:
            fleet: State of the hosts after the event.
            event: What happened.
        """
        ...


def stay(fleet: Fleet, reason: str, start: Iterable[int] = ()) -> Decision:
    """Return the decision to go on without moving servers."""
    return Decision("go on", reason, fleet.assigned, tuple(start))


def replace_and_wait(fleet: Fleet, reason: str, since: Literal["version", "checkpoint"] = "version") -> Decision:
    """Return the decision to wait until every host is replaced, and to begin again at home."""
    missing = set(range(len(fleet.home))) - set(fleet.staying)
    return Decision("move", reason, fleet.home, tuple(sorted(missing)), wait=True, since=since)


def spread_over(fleet: Fleet, hosts: Sequence[int]) -> Assignment:
    """Assign all servers to some hosts: at home if possible, otherwise with the host of the fewest servers of that role.

    Args:
        fleet: State of the hosts.
        hosts: Hosts to use, at least one, in ascending order.
    """
    assigned = [list(servers) if host in hosts else [] for host, servers in enumerate(fleet.home)]
    for host, servers in enumerate(fleet.home):
        if host in hosts:
            continue
        for server in servers:
            loads = [
                (sum(role == server[0] for role, _ in assigned[other]), len(assigned[other]), other) for other in hosts
            ]
            assigned[min(loads)[2]].append(server)
    return tuple(tuple(servers) for servers in assigned)


def place_shadows(assigned: Assignment, zones: Sequence[int] = ()) -> dict[Server, int]:
    """Return the host of every graph server's shadow: the next host with servers, if possible in another failure domain.

    Args:
        assigned: Servers of each host.
        zones: Failure domain of each host; empty: every host has another one.

    Returns:
        Hosts by graph server; empty if a single host has all servers.
    """
    hosts = [host for host, servers in enumerate(assigned) if servers]
    found: dict[Server, int] = {}
    for host in hosts:
        others = [other for other in hosts if other > host] + [other for other in hosts if other < host]
        apart = [other for other in others if not zones or zones[other] != zones[host]]
        for keeper in [*apart, *others][:1]:
            found |= {server: keeper for server in assigned[host] if server[0] == "graph"}
    return found
