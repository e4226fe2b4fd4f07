"""Recovery policies: what each decides and why, and what every decision of every policy satisfies."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylax.pipeline.recovery.base import EpochEnded, Fleet, Joined, Lost, Noticed, Server, place_shadows
from dorylax.pipeline.recovery.catalogue import POLICIES

SERVERS: list[Server] = [("graph", k) for k in range(4)]
HOME = ((SERVERS[0],), (SERVERS[1],), (SERVERS[2],), (SERVERS[3],), (("parameter", 0),))
ALL = frozenset(range(5))


def fleet(**changes: Any) -> Fleet:
    return Fleet(HOME, HOME, ALL, shadows=place_shadows(HOME))._replace(**changes)


REST = frozenset({0, 2, 3, 4})
AWAY = (tuple(SERVERS[:1]), (), tuple(SERVERS[1:3]), (SERVERS[3],), (("parameter", 0),))
CASES = [
    ("restart", fleet(alive=REST, checkpoint=True), Lost((1,)), ("move", (1,)), "from the newest checkpoint"),
    ("restart", fleet(alive=REST), Lost((1,)), ("move", (1,)), "there is no checkpoint"),
    ("restart", fleet(leaving=frozenset({1})), EpochEnded(), ("move", (1,)), "save it"),
    ("rerun", fleet(alive=REST), Lost((1,)), ("move", (1,)), "epoch is repeated"),
    ("rerun", fleet(alive=REST, training=False), Lost((1,)), ("move", (1,)), "no epoch was under way"),
    ("rerun", fleet(leaving=frozenset({1})), Noticed((1,), 120.0), ("go on", ()), "between epochs"),
    ("rerun", fleet(leaving=frozenset({1})), EpochEnded(), ("move", (1,)), "loses nothing"),
    ("rerun", fleet(), EpochEnded(), ("go on", ()), "only after a loss"),
    ("reroute", fleet(alive=REST), Lost((1,)), ("move", (1,)), "run the lost servers too"),
    ("reroute", fleet(alive=frozenset()), Lost((0, 1, 2, 3, 4)), ("move", (0, 1, 2, 3, 4)), "no host is left"),
    ("reroute", fleet(leaving=frozenset({2})), EpochEnded(), ("move", ()), "leave hosts with a notice"),
    ("reroute", fleet(leaving=ALL), EpochEnded(), ("move", (0, 1, 2, 3, 4)), "every host has a notice"),
    ("reroute", fleet(), Joined((1,)), ("go on", ()), "between two epochs"),
    ("reroute", fleet(alive=REST, assigned=AWAY), Lost((1,)), ("go on", (1,)), "ran no server"),
    ("shadow", fleet(alive=REST, assigned=AWAY), Lost((1,)), ("go on", (1,)), "ran no server"),
    ("shadow", fleet(alive=REST), Lost((1,)), ("take over", (1,)), "shadows finish the epoch"),
    ("shadow", fleet(alive=REST - {2}), Lost((1, 2)), ("move", (1, 2)), "a server and its shadow are lost"),
    ("shadow", fleet(alive=REST - {3}), Lost((1, 3)), ("take over", (1, 3)), "shadows finish the epoch"),
    ("shadow", fleet(alive=ALL - {4}), Lost((4,)), ("move", (4,)), "a parameter server has no shadow"),
    ("shadow", fleet(alive=REST, synchronous=False), Lost((1,)), ("move", (1,)), "only synchronous epochs"),
    ("shadow", fleet(alive=REST, training=False), Lost((1,)), ("move", (1,)), "no epoch is under way"),
]


@pytest.mark.parametrize(("name", "before", "event", "answer", "reason"), CASES)
def test_decision_and_reason(
    name: str, before: Fleet, event: Any, answer: tuple[str, tuple[int, ...]], reason: str
) -> None:
    decision = POLICIES[name].decide(before, event)
    assert (decision.action, decision.start) == answer
    assert reason in decision.reason
    assert decision.since == ("checkpoint" if name == "restart" and isinstance(event, Lost) else "version")


def test_servers_return_home_when_hosts_have_joined() -> None:
    moved = fleet(assigned=AWAY)
    for name in ("reroute", "shadow"):
        decision = POLICIES[name].decide(moved, EpochEnded())
        assert (decision.action, decision.assigned) == ("move", HOME)
        assert "return to hosts that have joined" in decision.reason


def test_shadows_are_in_another_zone_if_there_is_one() -> None:
    assert place_shadows(HOME) == {server: (number + 1) for number, server in enumerate(SERVERS)}
    assert place_shadows(HOME, [0, 0, 1, 1, 1]) == dict(zip(SERVERS, (2, 2, 0, 0), strict=True))
    assert place_shadows(HOME, [0] * 5) == place_shadows(HOME)
    assert place_shadows(((), tuple(SERVERS), ())) == {}


@st.composite
def situations(draw: st.DrawFn) -> tuple[Fleet, Any]:
    """A fleet with servers on hosts that run or are just lost, and an event that fits it."""
    hosts = draw(st.integers(1, 6))
    servers: list[Server] = [("graph", k) for k in range(draw(st.integers(1, 8)))] + [("parameter", 0)]
    home = [[server for k, server in enumerate(servers) if k % hosts == host] for host in range(hosts)]
    alive = draw(st.frozensets(st.integers(0, hosts - 1)))
    lost = draw(st.frozensets(st.sampled_from(range(hosts)))) - alive
    places = sorted(alive | lost)
    if not places:
        places, lost = [0], frozenset({0})
    where = [draw(st.sampled_from(places)) for _ in servers]
    assigned = tuple(
        tuple(s for s, place in zip(servers, where, strict=True) if place == host) for host in range(hosts)
    )
    starting = draw(st.frozensets(st.integers(0, hosts - 1))) - alive - lost
    leaving = draw(st.frozensets(st.sampled_from(sorted(alive)))) if alive else frozenset()
    state = Fleet(tuple(map(tuple, home)), assigned, alive, leaving, starting, place_shadows(assigned))
    state = state._replace(training=draw(st.booleans()), synchronous=draw(st.booleans()))
    if lost:
        return state, Lost(tuple(sorted(lost)))
    kinds: list[Any] = [EpochEnded(), Joined(tuple(alive)), Noticed(tuple(leaving), 30.0)]
    return state, draw(st.sampled_from(kinds))


@given(situations(), st.sampled_from(sorted(POLICIES)))
def test_every_server_runs_on_one_host_that_lives_or_is_awaited(found: tuple[Fleet, Any], name: str) -> None:
    state, event = found
    decision = POLICIES[name].decide(state, event)
    placed = [server for servers in decision.assigned for server in servers]
    assert sorted(placed) == sorted(server for servers in state.home for server in servers)
    available = state.alive | (set(decision.start) if decision.wait else set())
    if isinstance(event, Lost):
        assert {host for host, servers in enumerate(decision.assigned) if servers} <= available
    assert not set(decision.start) & (state.alive - state.leaving)
    if decision.action == "take over":
        assert not decision.wait
        unmoved = [host for host in state.alive if not set(state.assigned[host]) <= set(decision.assigned[host])]
        assert unmoved == []
