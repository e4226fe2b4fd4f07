"""`reroute`: the remaining hosts run the lost servers too, and return them when replacements join."""

from __future__ import annotations

from typing import final

from dorylax.pipeline.recovery.base import (
    Decision,
    EpochEnded,
    Event,
    Fleet,
    Lost,
    replace_and_wait,
    spread_over,
    stay,
)


@final
class Reroute:
    """See `Policy`. Spreads well if there are several graph servers per host."""

    name = "reroute"
    keeps_shadows = False

    def decide(self, fleet: Fleet, event: Event) -> Decision:
        """See `Policy`."""
        if isinstance(event, Lost):
            if not any(fleet.assigned[host] for host in event.hosts):
                return stay(fleet, "the lost hosts ran no server", fleet.vacant)
            if not fleet.alive:
                return replace_and_wait(fleet, "no host is left, so the epoch waits for replacements")
            again = "repeat the unfinished epoch" if fleet.training else "go on"
            return _spread(fleet, f"the remaining hosts run the lost servers too and {again}")
        if isinstance(event, EpochEnded):
            return rebalance(fleet)
        return stay(fleet, "servers move between two epochs", fleet.vacant)


def rebalance(fleet: Fleet) -> Decision:
    """Return the decision at the end of an epoch: leave hosts with a notice, and use hosts that have joined."""
    if not fleet.staying:
        return replace_and_wait(fleet, "every host has a notice")
    if spread_over(fleet, fleet.staying) == fleet.assigned:
        return stay(fleet, "the servers are where they belong", fleet.vacant)
    joined = [host for host in fleet.staying if not fleet.assigned[host] and fleet.home[host]]
    why = "servers leave hosts with a notice" if not joined else "servers return to hosts that have joined"
    return _spread(fleet, f"{why} between two epochs, which loses nothing")


def _spread(fleet: Fleet, reason: str) -> Decision:
    hosts = fleet.staying or sorted(fleet.alive)
    return Decision("move", reason, spread_over(fleet, hosts), fleet.vacant)
