"""Predictions beside the weights that do come."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import optax
import pytest

from dorylax.pipeline.parameters.prediction import choose
from dorylax.pipeline.parameters.records import ServerState, Step
from dorylax.pipeline.parameters.update import OptimizerStep

PARAMS = {"w": np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2), "steps": np.int32(7)}
GRADIENTS = {"w": np.full((3, 2), 0.25, np.float32), "steps": np.int32(0)}


def after(optimizer: optax.GradientTransformation, name: str, updates: int) -> tuple[ServerState, Any, list[Any]]:
    """The version after some updates with one gradient, the prediction, and the parameters of this and the next versions."""
    step = OptimizerStep(optimizer, PARAMS)
    prediction = choose(name, step)
    assert prediction is not None
    state, found, come = step.start(PARAMS, {}), None, []
    for number in range(updates + 3):
        if number >= updates:
            come.append(state.params)
        update = Step(number + 1, number, GRADIENTS, 1.0, 1)
        new = step(state, update)
        state = new._replace(remembered=prediction.remembered(state, update))
        if number + 1 == updates:
            found = state
    assert found is not None
    return found, prediction, come


@pytest.mark.parametrize("ahead", [1, 2])
@pytest.mark.parametrize(
    ("name", "optimizer"),
    [
        ("linear", optax.sgd(0.1)),
        ("optimizer", optax.sgd(0.1, momentum=0.9)),
        ("optimizer", optax.adam(0.1)),
        ("optimizer", optax.adam(optax.linear_schedule(0.1, 0.0, 6))),
        ("optimizer", optax.polyak_sgd()),
    ],
)
def test_what_goes_on_as_it_went_is_predicted(name: str, optimizer: optax.GradientTransformation, ahead: int) -> None:
    state, prediction, come = after(optimizer, name, 3)
    predicted = prediction.predict(state, ahead)
    assert jax.tree.map(np.shape, predicted) == jax.tree.map(np.shape, PARAMS)
    np.testing.assert_allclose(predicted["w"], come[ahead]["w"], rtol=1e-6)
    assert predicted["w"].dtype == np.float32
    assert predicted["steps"] == come[ahead]["steps"]


def test_momentum_is_what_a_line_does_not_know() -> None:
    """So the two differ, and each is what its name says."""
    optimizer = optax.sgd(0.1, momentum=0.9)
    state, line, come = after(optimizer, "linear", 2)
    before = state.remembered["w"]
    np.testing.assert_allclose(line.predict(state, 2)["w"], 3 * state.params["w"] - 2 * before, rtol=1e-6)
    assert np.abs(line.predict(state, 1)["w"] - come[1]["w"]).max() > 1e-3


@pytest.mark.parametrize("name", ["linear", "optimizer"])
def test_predicting_changes_nothing(name: str) -> None:
    state, prediction, _ = after(optax.adam(0.1), name, 2)
    before = jax.tree.map(np.array, (state.params, state.opt_state, state.remembered))
    first = prediction.predict(state, 2)
    again = prediction.predict(state, 2)
    assert jax.tree.all(jax.tree.map(np.array_equal, first, again))
    after_it = (state.params, state.opt_state, state.remembered)
    assert jax.tree.all(jax.tree.map(np.array_equal, before, after_it))


@pytest.mark.parametrize("name", ["linear", "optimizer"])
def test_what_is_remembered_can_be_put_back(name: str) -> None:
    state, prediction, _ = after(optax.adam(0.1), name, 2)
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(state.remembered)]
    restored = jax.tree.unflatten(jax.tree.structure(prediction.like(PARAMS)), leaves)
    first, second = (prediction.predict(one, 1) for one in (state, state._replace(remembered=restored)))
    assert jax.tree.all(jax.tree.map(np.array_equal, first, second))


def test_none_and_others() -> None:
    step = OptimizerStep(optax.sgd(0.1), PARAMS)
    assert choose("none", step) is None
    with pytest.raises(ValueError, match="predict_weights must be 'none', 'linear' or 'optimizer', got 'both'"):
        choose("both", step)
