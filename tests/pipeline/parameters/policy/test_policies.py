"""What every update policy must keep to, and what each is for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylax.pipeline.parameters.messages import Complete
from dorylax.pipeline.parameters.policy import DueStep, PerEpoch, PerInterval, Switching, UpdatePolicy

K, EPOCHS = 3, 4
POLICIES: dict[str, Callable[[], UpdatePolicy]] = {
    "per_epoch": lambda: PerEpoch(K),
    "per_interval": lambda: PerInterval(K),
    "switching": lambda: Switching(PerInterval(K), PerEpoch(K), 2),
}


def complete(interval: int, epoch: int) -> Complete:
    gradient = np.float32(10.0) ** np.float32(interval - epoch) / np.float32(3)
    return Complete({"w": np.full(2, gradient)}, 0.1 * interval + epoch, (interval, epoch))


def interleaved(random: Any) -> list[tuple[int, int]]:
    """A random order in which the epochs of each interval come in order."""
    order = [k for k in range(K) for _ in range(EPOCHS)]
    random.shuffle(order)
    return [(k, order[:place].count(k)) for place, k in enumerate(order)]


@pytest.mark.parametrize("name", POLICIES)
@given(random=st.randoms(use_true_random=False))
def test_each_gradient_is_in_one_step(name: str, random: Any) -> None:
    policy = POLICIES[name]()
    assert isinstance(policy, UpdatePolicy)
    steps: list[DueStep] = []
    for came, pair in enumerate(interleaved(random), start=1):
        steps += policy.add(*pair, complete(*pair))
        assert policy.waiting == came - sum(len(step.pairs) for step in steps)
    assert policy.waiting == 0
    pairs = [pair for step in steps for pair in step.pairs]
    assert sorted(pairs) == [(k, epoch) for k in range(K) for epoch in range(EPOCHS)]
    for step in steps:
        assert {epoch for _, epoch in step.pairs} == {step.epoch}
        assert step.statistics == step.pairs[0]
        assert step.losses == tuple(complete(*pair).loss for pair in step.pairs)
        expected = complete(*step.pairs[0]).gradients["w"]
        for pair in step.pairs[1:]:
            expected = expected + complete(*pair).gradients["w"]
        np.testing.assert_array_equal(step.gradients["w"], expected)


def test_per_epoch_sums_whole_epochs_in_interval_order() -> None:
    policy = PerEpoch(2)
    assert policy.add(1, 0, complete(1, 0)) == []
    assert policy.add(1, 1, complete(1, 1)) == []
    (step,) = policy.add(0, 0, complete(0, 0))
    assert step.pairs == ((0, 0), (1, 0))
    assert step.factor == 1


def test_per_interval_steps_at_once_with_its_factor() -> None:
    (step,) = PerInterval(7).add(1, 5, complete(1, 5))
    assert (step.pairs, step.factor) == (((1, 5),), 7)


def test_switching_changes_at_its_epoch() -> None:
    policy = Switching(PerInterval(2), PerEpoch(2), 1)
    assert len(policy.add(0, 0, complete(0, 0))) == 1
    assert policy.add(0, 1, complete(0, 1)) == []
    assert len(policy.add(1, 0, complete(1, 0))) == 1
    (step,) = policy.add(1, 1, complete(1, 1))
    assert (step.pairs, step.factor) == (((0, 1), (1, 1)), 1)
