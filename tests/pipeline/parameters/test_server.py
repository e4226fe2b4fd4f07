from __future__ import annotations

import numpy as np
import pytest

from dorylax.errors import RunError
from dorylax.pipeline.parameters.records import Push, ServerState, Step
from dorylax.pipeline.parameters.server import ParameterServer
from dorylax.pipeline.parameters.stability import StabilityGate


def server(version: int = 0) -> ParameterServer:
    return ParameterServer(ServerState(version, {"w": version}, (), {"n": 10 + version}), stages=[0, 1], first=0)


def update(number: int) -> Step:
    return Step(number, 0, {"w": 1}, 0.0, 1)


def test_updates_are_taken_in_order_once() -> None:
    replica = server()
    replica.receive([update(2), update(3)])
    assert replica.next_step() is None
    assert replica.pending == 2
    replica.receive([update(1), update(2)])
    for number in (1, 2, 3):
        following = replica.next_step()
        assert following is not None
        assert following.number == number
        replica.advance(ServerState(number, {"w": number}, (), {}))
    replica.receive([update(1), update(3)])
    assert replica.next_step() is None
    assert replica.pending == 0
    with pytest.raises(ValueError, match="version 3 does not follow version 3"):
        replica.advance(ServerState(3, {}, (), {}))


def test_intervals_run_ahead_only_while_the_gate_is_open() -> None:
    replica = server()
    closed = StabilityGate().start({})
    replica.advance(ServerState(1, {}, (), {}, stability=closed))
    assert replica.may_pull(0, 1)  # has all steps of the epochs before
    assert replica.pull(0, 1).exact
    assert not replica.may_pull(0, 2)
    replica.receive([update(2)])
    replica.advance(ServerState(2, {}, (), {}, stability=closed._replace(open=np.bool_(True))))
    assert replica.may_pull(0, 2)
    assert replica.may_pull(0, 3)
    assert not replica.pull(1, 3).exact
    assert replica.pull(0, 1).exact  # an answer stays the same


def test_only_so_many_intervals_run_ahead_in_an_epoch() -> None:
    replica = ParameterServer(ServerState(0, {}, (), {}), stages=[0], first=0, most_ahead=1)
    assert all(replica.may_pull(interval, 0) for interval in range(3))
    assert [replica.may_pull(interval, 1) for interval in (2, 0, 1)] == [True, False, False]
    assert replica.may_pull(2, 1)  # whoever may, may for good
    replica.receive([update(1)])
    replica.advance(ServerState(1, {}, (), {}))
    assert all(replica.may_pull(interval, 1) for interval in range(3))


def test_a_gradient_is_finished_with_the_version_that_was_pulled() -> None:
    replica = server(4)
    pulled = replica.pull(3, 0)
    replica.receive([update(5)])
    replica.advance(ServerState(5, {"w": 5}, (), {"n": 15}))
    assert replica.pull(3, 0) is pulled
    assert pulled == (4, {"w": 4}, {"n": 14}, 0, False)
    assert replica.push(Push(3, 0, 1, {"a": 1})) is None
    assert (replica.live_stashes, replica.pending) == (1, 1)
    whole = replica.push(Push(3, 0, 0, {"b": 2}))
    assert replica.push(Push(3, 0, 0, {"b": 2})) is None
    assert (replica.live_stashes, replica.pending) == (0, 0)
    assert whole is not None
    assert whole[0] is pulled
    assert whole[1] == {0: {"b": 2}, 1: {"a": 1}}
    assert replica.pull(3, 1).version == 5


def test_a_gradient_without_weights_is_refused() -> None:
    replica = server()
    replica.push(Push(0, 0, 0, {}))
    with pytest.raises(RunError, match="without having pulled"):
        replica.push(Push(0, 0, 1, {}))
