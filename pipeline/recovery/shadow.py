"""`shadow`: a neighbour keeps every graph server's shard and rows, and finishes the epoch in its place.

Bamboo (Thorpe et al., NSDI '23) does this for stages of a layer pipeline. The shadow computes the forward steps when its
host is idle, and the backward steps only after a loss (section 4.2: eager forward, lazy backward).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from dorylax.pipeline.recovery.base import Assignment, Decision, EpochEnded, Event, Fleet, Lost, Server, stay
from dorylax.pipeline.recovery.reroute import Reroute, rebalance


@final
class Shadow:
    """See `Policy`."""

    name = "shadow"
    keeps_shadows = True

    def decide(self, fleet: Fleet, event: Event) -> Decision:
        """See `Policy`."""
        if isinstance(event, Lost):
            lost = [server for host in event.hosts for server in fleet.assigned[host]]
            obstacle = _obstacle(fleet, lost)
            if not lost:
                return Reroute().decide(fleet, event)
            if obstacle is None:
                return Decision(
                    "take over", "the shadows finish the epoch", _promoted(fleet, event.hosts), fleet.vacant
                )
            decision = Reroute().decide(fleet, event)
            return decision._replace(reason=f"{obstacle}: {decision.reason}")
        if isinstance(event, EpochEnded):
            return rebalance(fleet)
        return stay(fleet, "servers move between two epochs", fleet.vacant)


def _obstacle(fleet: Fleet, lost: Sequence[Server]) -> str | None:
    """Return why shadows cannot finish the epoch; None if they can."""
    if not fleet.training:
        return "no epoch is under way"
    if not fleet.synchronous:
        return "shadows follow only synchronous epochs"
    if any(role == "parameter" for role, _ in lost):
        return "a parameter server has no shadow"
    if any(fleet.shadows.get(server) not in fleet.alive for server in lost):
        return "a server and its shadow are lost"
    return None


def _promoted(fleet: Fleet, lost: Sequence[int]) -> Assignment:
    assigned = [() if host in lost else servers for host, servers in enumerate(fleet.assigned)]
    for host in lost:
        for server in fleet.assigned[host]:
            keeper = fleet.shadows[server]
            assigned[keeper] = (*assigned[keeper], server)
    return tuple(assigned)
