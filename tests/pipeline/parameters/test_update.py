from __future__ import annotations

import functools
import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dorylax.pipeline.parameters.records import ServerState, Step
from dorylax.pipeline.parameters.update import OptimizerStep

PARAMS = {"w": np.linspace(-1, 1, 15, dtype=np.float32).reshape(5, 3), "b": np.zeros(3, np.float32)}
STEPS = 4
OPTIMIZERS = {
    "sgd": optax.sgd(0.1),
    "adamw with a schedule": optax.adamw(optax.cosine_decay_schedule(0.1, STEPS), weight_decay=1e-2),
    "clipped adam": optax.chain(optax.clip_by_global_norm(0.5), optax.adam(optax.linear_schedule(0.1, 0.0, 4))),
    "of the loss": optax.chain(optax.adam(0.01), optax.contrib.reduce_on_plateau(patience=1, factor=0.5)),
    "of the loss and gradient": optax.polyak_sgd(),
}


def gradients(step: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(step)
    return {name: rng.standard_normal(leaf.shape).astype(leaf.dtype) for name, leaf in PARAMS.items()}


def loss(step: int) -> float:
    return 1.5 if step > 1 else 2.25 - step


def assert_identical(first: Any, second: Any) -> None:
    assert jax.tree.structure(first) == jax.tree.structure(second)
    for one, other in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        assert one.dtype == other.dtype
        assert not getattr(one, "weak_type", False)
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


def served(optimizer: optax.GradientTransformation, factor: int = 1, steps: int = STEPS) -> ServerState:
    step = OptimizerStep(optimizer, PARAMS)
    state = step.start(PARAMS, {})
    for number in range(steps):
        state = step(state, update(number, factor))
    return state


def update(epoch: int, factor: int = 1, **more: Any) -> Step:
    """That which leads from version `epoch` to the next."""
    return Step(epoch + 1, epoch, gradients(epoch), loss(epoch), factor, **more)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_its_steps_are_those_of_optax(name: str) -> None:
    optimizer = optax.with_extra_args_support(OPTIMIZERS[name])
    params, state = PARAMS, optimizer.init(PARAMS)
    for number in range(STEPS):
        given = {"value": loss(number), "grad": gradients(number)}
        updates, state = optimizer.update(gradients(number), state, params, **given)
        params = optax.apply_updates(params, updates)
    found = served(OPTIMIZERS[name])
    assert found.version == STEPS
    same = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-7)
    jax.tree.map(same, (found.params, found.opt_state), (params, state))


@pytest.mark.parametrize("name", ["sgd", "clipped adam", "of the loss"])
def test_a_factor_scales_around_the_optimizer(name: str) -> None:
    chained = optax.chain(optax.scale(5), OPTIMIZERS[name], optax.scale(1 / 5))
    step = OptimizerStep(chained, PARAMS)
    expected = step.start(PARAMS, {})
    for number in range(STEPS):
        expected = step(expected, update(number)._replace(loss=5 * loss(number)))
    state = served(OPTIMIZERS[name], factor=5)
    assert_identical(state.params, expected.params)
    assert_identical(state.opt_state, expected.opt_state[1])


def test_an_optimizer_sees_loss_and_gradient_of_the_same_function() -> None:
    """Polyak's step is loss / |gradient|²; of K times the function it is a K-th as long, on a K-fold gradient."""
    expected = served(optax.polyak_sgd(max_learning_rate=1e9), steps=1).params
    moved = served(optax.polyak_sgd(max_learning_rate=1e9), factor=4, steps=1).params
    for name, before in PARAMS.items():
        np.testing.assert_allclose(4 * (moved[name] - before), expected[name] - before, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_dtypes_are_kept(dtype: str) -> None:
    params = {"w": np.ones(3, jnp.dtype(dtype))}
    step = OptimizerStep(optax.adam(0.1), params)
    state = step.start(params, {})
    after = step(state, Step(1, 0, {"w": np.ones(3, jnp.dtype(dtype))}, 1.0, 3))
    for new, old in zip(jax.tree.leaves(after[1:]), jax.tree.leaves(state[1:]), strict=True):
        assert new.dtype == old.dtype
    assert (after.params["w"] < 1).all()


def test_the_state_before_stays_valid_and_shares_nothing_with_what_was_given() -> None:
    params = {"w": np.ones(64, np.float32)}
    step = OptimizerStep(optax.sgd(1.0), params)
    kept = {"mean": np.ones(64, np.float32)}
    state = step.start(params, kept)
    params["w"][:] = kept["mean"][:] = 5
    step(state, Step(1, 0, {"w": np.ones(64, np.float32)}, 0.0, 1))
    np.testing.assert_array_equal(state.params["w"], 1)
    np.testing.assert_array_equal(state.state["mean"], 1)


def test_versions_follow_one_another() -> None:
    step = OptimizerStep(optax.sgd(1.0), PARAMS)
    with pytest.raises(ValueError, match="update 2 does not follow version 0"):
        step(step.start(PARAMS, {}), update(1))


def test_the_state_of_the_model_advances_once_with_every_version() -> None:
    """From the newest state and the parameters before the update, by the statistics and the epoch of the update."""

    def advance(params: Any, state: Any, epoch: int, statistics: Any) -> Any:
        return {"mean": 0.5 * state["mean"] + statistics * params["w"][0, 0] + 100.0 * epoch}

    step = OptimizerStep(optax.sgd(0.1), PARAMS, advance)
    versions = [step.start(PARAMS, {"mean": np.float32(1.0)})]
    expected = [1.0]
    for number in range(STEPS):
        versions.append(step(versions[-1], update(number, statistics=np.float32(number + 2))))
        before = float(versions[-2].params["w"][0, 0])
        expected.append(0.5 * expected[-1] + (number + 2) * before + 100.0 * number)
    np.testing.assert_allclose([version.state["mean"] for version in versions], expected, rtol=1e-6)
    plain = OptimizerStep(optax.sgd(0.1), PARAMS)
    unchanged = plain.start(PARAMS, {"mean": np.float32(1.0)})
    assert plain(unchanged, update(0)).state is unchanged.state


def test_optimizers_of_local_functions_are_shipped() -> None:
    base = 0.5

    def schedule(count: Any) -> Any:
        return base / (1 + count)

    state = served(optax.sgd(schedule), steps=2)
    expected = {name: leaf - 0.5 * gradients(0)[name] - 0.25 * gradients(1)[name] for name, leaf in PARAMS.items()}
    np.testing.assert_allclose(state.params["w"], expected["w"], rtol=1e-5)


def test_an_optimizer_that_cannot_be_shipped_is_refused() -> None:
    lock = threading.Lock()

    def schedule(count: Any) -> Any:
        with lock:
            return 0.1

    with pytest.raises(ValueError, match="cannot be sent to parameter servers"):
        OptimizerStep(optax.sgd(schedule), PARAMS)


@pytest.mark.parametrize(
    "optimizer",
    [optax.lbfgs(), optax.chain(optax.sgd(1.0), optax.scale_by_backtracking_linesearch(max_backtracking_steps=3))],
    ids=["lbfgs", "backtracking"],
)
def test_line_searches_are_refused(optimizer: optax.GradientTransformation) -> None:
    with pytest.raises(ValueError, match="evaluates the loss at other parameters"):
        OptimizerStep(optimizer, PARAMS)
