"""What parameter servers answer and refuse, and how late gradients are treated; `test_group` has any order of all of it."""

from __future__ import annotations

import numpy as np
import pytest

from dorylax.errors import RunError
from dorylax.pipeline.parameters.policies import LateGradients
from dorylax.pipeline.parameters.records import Applied, Pulled, Push, ServerState, Step
from dorylax.pipeline.parameters.sequencer import Sequencer
from dorylax.pipeline.parameters.server import Assembly, ParameterServer, Stash
from dorylax.pipeline.parameters.stability import StabilityGate


def update(number: int) -> Step:
    return Step(number, 0, {"w": 1}, 0.0, 1)


def test_intervals_run_ahead_only_while_the_gate_is_open() -> None:
    replica = ParameterServer(ServerState(0, {"w": 0}, (), {"n": 10}), stages=[0, 1], first=0)
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


def test_stages_are_checked() -> None:
    with pytest.raises(ValueError, match="at least one stage"):
        Assembly([], first=0)
    with pytest.raises(ValueError, match="stage 3 pushes no gradient: those that do are 0, 1"):
        Assembly([0, 1], first=0).add(Push(0, 0, 3, {}))


def test_repeats_keep_the_first_and_late_ones_start_nothing() -> None:
    assembly = Assembly([0, 1], first=1)
    assembly.add(Push(0, 1, 0, {"w": "first"}))
    assembly.add(Push(0, 1, 0, {"w": "again"}))
    assert len(assembly) == 1
    assert assembly.add(Push(0, 1, 1, {})) == {0: {"w": "first"}, 1: {}}
    assert assembly.add(Push(0, 1, 1, {})) is None
    for interval in range(2):  # of epochs before the first one
        assert assembly.add(Push(interval, 0, 0, {})) is None
    assert len(assembly) == 0


def test_pulls_out_of_turn_are_refused() -> None:
    stash, pulled = Stash(first=1), Pulled(3, {"w": 1}, {"n": 5})
    with pytest.raises(RunError, match=r"interval 0 cannot pull weights for epoch 0: its gradient .* is complete"):
        stash.pull(0, 0, pulled)
    stash.pull(0, 1, pulled)
    with pytest.raises(RunError, match="epoch 2 before all of its gradient of epoch 1 is pushed"):
        stash.pull(0, 2, pulled)
    with pytest.raises(RunError, match="interval 0 pushed a gradient of epoch 2 without"):
        stash.release(0, 2)
    stash.release(0, 1)
    with pytest.raises(RunError, match=r"epoch 1: its gradient .* is complete"):
        stash.pull(0, 1, pulled)
    with pytest.raises(RunError, match="without having pulled"):
        stash.release(0, 1)


# Late gradients.


def complete(interval: int, epoch: int) -> Step:
    gradient = np.float32(10.0) ** np.float32(interval - epoch) / np.float32(3)
    return Step.of(interval, epoch, ({"w": np.full(2, gradient)}, 0.1 * interval + epoch, (interval, epoch)))


def is_made_of(step: Step, pairs: list[tuple[int, int]]) -> None:
    every = [complete(*pair) for pair in pairs]
    np.testing.assert_array_equal(step.gradients["w"], sum([one.gradients["w"] for one in every], np.float32(0)))
    assert step.statistics == pairs[0]
    assert step.loss == sum(one.loss for one in every)


def test_what_is_late_is_stood_in_for_by_what_came_last() -> None:
    policy = LateGradients(4, 0.5)
    for k in range(3):
        assert policy.add(complete(k, 0)) == []  # the first epoch waits for all
    (step,) = policy.add(complete(3, 0))
    assert len(step.pairs) == 4
    assert policy.add(complete(3, 1)) == []
    (step,) = policy.add(complete(1, 1))
    assert step.pairs == ((1, 1), (3, 1))
    is_made_of(step, [(0, 0), (1, 1), (2, 0), (3, 1)])
    assert policy.add(complete(0, 1)) == [Applied(0, ((0, 1),), (1.0,))]
    assert policy.add(complete(1, 2)) == []
    (step,) = policy.add(complete(3, 2))
    is_made_of(step, [(0, 1), (1, 2), (2, 0), (3, 2)])


@pytest.mark.parametrize(("share", "enough"), [(0.7, 7), (0.71, 8), (0.05, 1), (0.9, 9)])
def test_shares_are_rounded_up_and_are_what_was_written(share: float, enough: int) -> None:
    policy = LateGradients(10, share)
    for k in range(10):
        policy.add(complete(k, 0))
    assert [len(policy.add(complete(k, 1))) for k in range(enough)] == [0] * (enough - 1) + [1]


def test_a_late_gradient_is_told_of_at_once_where_its_step_is() -> None:
    sequencer = Sequencer(2, "per_epoch", gradient_share=0.5)
    sequencer.add(complete(0, 0))
    sequencer.add(complete(1, 0))
    sequencer.add(complete(0, 1))
    sequencer.confirm(1)
    assert sequencer.add(complete(1, 1)) == []
    assert sequencer.confirm(2) == [Applied(2, ((0, 1), (1, 1)), (1.0, 1.1))]
    sequencer.add(complete(0, 2))
    sequencer.confirm(3)
    assert sequencer.add(complete(1, 2)) == [Applied(3, ((1, 2),), (2.1,))]
    sequencer.forget()
    assert sequencer.add(complete(0, 3)) == []
    assert sequencer.pending == 1


def test_a_switch_that_comes_too_late_is_refused() -> None:
    sequencer = Sequencer(2, "per_interval")
    sequencer.add(complete(0, 0))
    sequencer.add(complete(0, 2))
    with pytest.raises(ValueError, match="per_epoch from epoch 2 on: gradients of epoch 2 have come"):
        sequencer.switch(2)
    sequencer.switch(3)
    sequencer.switch(0)  # it is switched: no matter
