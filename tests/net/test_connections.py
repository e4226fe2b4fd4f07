"""Who has to go when there are too many connections, and how many there may be: decided without sockets."""

from __future__ import annotations

import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylax.net.connections import HANDSHAKE_SECONDS, Capacity, Connection, Connections, raise_limit

A, B = "tcp://127.0.0.1:1", "tcp://127.0.0.1:2"
LONG = 2 * HANDSHAKE_SECONDS


def at(address: str, *descriptors: int) -> list[Connection]:
    return [Connection(descriptor, address) for descriptor in descriptors]


def connected(*descriptors: int, strangers: int = 2, peers: int = 2) -> Connections:
    found = Connections(Capacity(strangers, peers, 0))
    for descriptor in descriptors:
        found.accepted(Connection(descriptor, A), 0.0)
    return found


def test_of_too_many_peers_those_go_that_were_silent_longest():
    connections = connected(5, 6, 7)
    for descriptor in (5, 6, 7, 5):
        connections.heard(Connection(descriptor, A))
    assert connections.surplus(0.0) == ([], at(A, 6))


def test_who_outlasts_the_handshake_has_passed_it():
    connections = connected(5, 6, 7, peers=3)
    connections.heard(Connection(7, A))
    for descriptor in (8, 9):
        connections.accepted(Connection(descriptor, A), LONG)
    assert connections.surplus(LONG) == ([], [])
    for descriptor in (10, 11):  # all four are known after another while, and are too many
        connections.accepted(Connection(descriptor, A), 2 * LONG)
    strangers, peers = connections.surplus(2 * LONG)
    assert (strangers, len(peers), len(connections)) == ([], 2, 5)
    assert Connection(7, A) not in peers  # it has spoken


def test_who_may_still_be_shaking_hands_is_a_stranger():
    connections = connected(5, 6, 7, 8)
    assert connections.surplus(HANDSHAKE_SECONDS + 0.5) == (at(A, 5, 6), [])  # ZeroMQ's clock may be behind


def test_descriptors_are_used_again():
    connections = connected(5, 6)
    connections.heard(Connection(5, A))
    connections.accepted(Connection(5, B), 1.0)  # that the one before has ended is told later, by another socket
    connections.ended(Connection(5, A))
    connections.heard(Connection(5, A))
    connections.accepted(Connection(7, B), 1.0)
    assert connections.surplus(1.0) == (at(A, 6), [])
    connections.ended(Connection(5, B))
    connections.ended(Connection(7, B))
    assert len(connections) == 0


def test_who_was_never_accepted_is_not_counted():
    connections = connected()
    connections.heard(Connection(5, A))
    connections.ended(Connection(5, A))
    assert len(connections) == 0


def test_an_eighth_of_the_connections_are_for_strangers_up_to_256():
    assert Capacity.of(1024) == Capacity(strangers=64, peers=448, others=512)
    assert Capacity.of(65_536) == Capacity(strangers=256, peers=32_512, others=32_768)


@given(st.integers(16, 2**30))
def test_half_of_the_descriptors_are_for_others(limit: int):
    capacity = Capacity.of(limit)
    assert capacity.strangers + capacity.peers + capacity.others == limit
    assert capacity.others >= limit // 2
    assert 1 <= capacity.strangers <= min(256, capacity.peers)


@pytest.mark.parametrize(
    ("soft", "hard", "found"),
    [
        (1024, 4096, 4096),
        (1024, 2**30, 65_536),
        (1024, resource.RLIM_INFINITY, 65_536),
        (4096, 4096, 4096),
        (100_000, 200_000, 100_000),  # never lowered
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 65_536),
    ],
)
def test_the_soft_limit_follows_the_hard_one(monkeypatch, soft, hard, found):
    limits = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda which: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda which, pair: limits.append(pair))
    assert raise_limit() == found
    assert limits[-1][1] == hard
    assert len(limits) == (1 if soft in (found, resource.RLIM_INFINITY) else 2)
    assert raise_limit() == found


@pytest.mark.parametrize("error", [ValueError("current limit exceeds maximum limit"), OSError(22, "Invalid argument")])
def test_a_system_that_refuses_leaves_it_as_it_is(monkeypatch, error):
    def refuse(which: int, pair: tuple[int, int]) -> None:
        raise error

    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert raise_limit() == 256
