"""What every update policy must keep to, and what each is for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylax.pipeline.parameters.policies import (
    LateGradients,
    OrderedSum,
    PerEpoch,
    PerInterval,
    Switching,
    UpdatePolicy,
)
from dorylax.pipeline.parameters.records import Applied, Step

K, EPOCHS = 3, 4
POLICIES: dict[str, Callable[[], UpdatePolicy]] = {
    "per_epoch": lambda: PerEpoch(K),
    "per_interval": lambda: PerInterval(K),
    "late": lambda: LateGradients(K, 0.5),
    "switching": lambda: Switching(PerInterval(K), PerEpoch(K), 2),
    "late, then all": lambda: Switching(LateGradients(K, 0.5), PerEpoch(K), 2),
}


def complete(interval: int, epoch: int) -> Step:
    gradient = np.float32(10.0) ** np.float32(interval - epoch) / np.float32(3)
    return Step.of(interval, epoch, ({"w": np.full(2, gradient)}, 0.1 * interval + epoch, (interval, epoch)))


def interleaved(random: Any) -> list[tuple[int, int]]:
    """A random order in which the epochs of each interval come in order."""
    order = [k for k in range(K) for _ in range(EPOCHS)]
    random.shuffle(order)
    return [(k, order[:place].count(k)) for place, k in enumerate(order)]


@pytest.mark.parametrize("name", POLICIES)
@given(random=st.randoms(use_true_random=False))
def test_each_gradient_is_in_one_step_or_late(name: str, random: Any) -> None:
    policy = POLICIES[name]()
    assert isinstance(policy, UpdatePolicy)
    steps: list[Step] = []
    late: list[Applied] = []
    newest: dict[int, tuple[int, int]] = {}  # of each interval, as it has come
    closed: list[int] = []
    for came, pair in enumerate(interleaved(random), start=1):
        for found in policy.add(complete(*pair)):
            if isinstance(found, Applied):
                assert found == (0, (pair,), (complete(*pair).loss,))
                assert pair[1] in closed
                late.append(found)
                newest[pair[0]] = pair
                continue
            steps.append(found)
            newest |= {interval: (interval, epoch) for interval, epoch in found.pairs}
            is_made_of(found, [newest[k] for k in range(K)] if "late" in name else found.pairs)
            closed += [found.epoch] * found.closes
        assert policy.waiting == came - len(late) - sum(len(step.pairs) for step in steps)
    assert policy.waiting == 0
    pairs = [pair for step in steps for pair in step.pairs] + [pair for each in late for pair in each.pairs]
    assert sorted(pairs) == [(k, epoch) for k in range(K) for epoch in range(EPOCHS)]
    assert closed == list(range(EPOCHS))
    for step in steps:
        assert {epoch for _, epoch in step.pairs} == {step.epoch}
        assert step.losses == tuple(complete(*pair).loss for pair in step.pairs)


def is_made_of(step: Step, pairs: Sequence[tuple[int, int]]) -> None:
    every = [complete(*pair) for pair in pairs]
    expected = every[0].gradients["w"]
    for one in every[1:]:
        expected = expected + one.gradients["w"]
    np.testing.assert_array_equal(step.gradients["w"], expected)
    assert step.statistics == pairs[0]
    assert step.loss == sum(one.loss for one in every)


def test_per_interval_steps_at_once_with_its_factor() -> None:
    (step,) = PerInterval(7).add(complete(1, 5))
    assert (step.pairs, step.factor) == (((1, 5),), 7)
    (step,) = PerInterval(7, scaling=False).add(complete(1, 5))
    assert step.factor == 1


def test_what_is_late_is_stood_in_for_by_what_came_last() -> None:
    policy = LateGradients(4, 0.5)
    for k in range(3):
        assert policy.add(complete(k, 0)) == []  # the first epoch waits for all
    (step,) = only_steps(policy.add(complete(3, 0)))
    assert len(step.pairs) == 4
    assert policy.add(complete(3, 1)) == []
    (step,) = only_steps(policy.add(complete(1, 1)))
    assert step.pairs == ((1, 1), (3, 1))
    is_made_of(step, [(0, 0), (1, 1), (2, 0), (3, 1)])
    assert policy.add(complete(0, 1)) == [Applied(0, ((0, 1),), (1.0,))]
    assert policy.add(complete(1, 2)) == []
    (step,) = only_steps(policy.add(complete(3, 2)))
    is_made_of(step, [(0, 1), (1, 2), (2, 0), (3, 2)])


def test_a_step_waits_for_the_step_before_it() -> None:
    policy = LateGradients(4, 0.5)
    assert policy.add(complete(0, 0)) == []
    for k in range(1, 4):
        for epoch in range(2):
            if (k, epoch) != (3, 1):
                assert len(policy.add(complete(k, epoch))) == (2 if (k, epoch) == (3, 0) else 0)


def test_after_forgetting_all_are_waited_for() -> None:
    policy = LateGradients(2, 0.5)
    policy.add(complete(0, 0))
    policy.add(complete(1, 0))
    policy.forget()
    assert policy.add(complete(0, 1)) == []
    assert len(policy.add(complete(1, 1))) == 1
    assert len(policy.add(complete(1, 2))) == 1


@pytest.mark.parametrize(("share", "enough"), [(0.7, 7), (0.71, 8), (0.05, 1), (0.9, 9)])
def test_shares_are_rounded_up_and_are_what_was_written(share: float, enough: int) -> None:
    policy = LateGradients(10, share)
    for k in range(10):
        policy.add(complete(k, 0))
    assert [len(policy.add(complete(k, 1))) for k in range(enough)] == [0] * (enough - 1) + [1]


def only_steps(found: Sequence[Step | Applied]) -> list[Step]:
    return [step for step in found if isinstance(step, Step)]


# float32 terms of very different size, whose sum depends on the order.
TERMS = [{"w": np.float32(10.0**k) * np.arange(1, 4, dtype=np.float32) / 3, "b": jnp.float32(0.1**k)} for k in range(6)]


@given(st.permutations(range(6)))
def test_the_order_of_arrival_does_not_matter(order: list[int]) -> None:
    total = OrderedSum(6)
    for place in order:
        assert total.total is None
        total.add(place, TERMS[place])
    expected = TERMS[0]
    for term in TERMS[1:]:
        expected = {name: expected[name] + term[name] for name in term}
    assert total.total is not None
    for name, value in expected.items():
        np.testing.assert_array_equal(total.total[name], value)
        assert total.total[name].dtype == np.float32


def test_terms_are_left_as_they_are() -> None:
    term = np.ones(3)
    total = OrderedSum(2)
    total.add(0, term)
    total.add(1, term)
    assert term.tolist() == [1, 1, 1]


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
def test_dtypes_are_kept(dtype: str) -> None:
    total = OrderedSum(2)
    for place in range(2):
        total.add(place, np.ones(2, jnp.dtype(dtype)))
    assert total.total is not None
    assert total.total.dtype == jnp.dtype(dtype)
