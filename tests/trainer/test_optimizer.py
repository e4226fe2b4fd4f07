"""Optimizers by name, against arithmetic by hand; schedules, the same on one machine, in pipelines and after resuming."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from dorylax.config import OptimizerConfig, RunConfig
from dorylax.config.optimizers import OPTIMIZERS
from dorylax.config.schema import OptimizerConfig as Schema
from dorylax.errors import DorylaxError
from dorylax.program.model.loss import masked_loss
from dorylax.settings.errors import ConfigError
from dorylax.trainer import Trainer, prepare_data
from dorylax.trainer.from_config import build_model, first_layer_mask, make_optimizer, step_size


def _config(name: str, **options: Any) -> OptimizerConfig:
    return Schema(name=name, **{"learning_rate": 0.1, **OPTIMIZERS[name].options, **options})


def _steps(config: OptimizerConfig, w: float, gradients: list[float]) -> list[float]:
    """The parameter after each step."""
    transformation = make_optimizer(config)
    params = {"w": jnp.float32(w)}
    state = transformation.init(params)
    seen = []
    for gradient in gradients:
        updates, state = transformation.update({"w": jnp.float32(gradient)}, state, params)
        params = jax.tree.map(jnp.add, params, updates)
        seen.append(float(params["w"]))
    return seen


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # w = 2, gradients 0.5 and 0.5, learning rate 0.1.
        ("sgd", [1.95, 1.9]),
        ("momentum", [1.95, 1.95 - 0.1 * (0.5 + 0.9 * 0.5)]),
        ("nesterov", [2 - 0.1 * (0.5 + 0.9 * 0.5), 2 - 0.095 - 0.1 * (0.5 + 0.9 * 0.95)]),
        ("adam", [1.9, 1.8]),
        ("adamw", [1.9, 1.8]),
        ("rmsprop", [2 - 0.05 / math.sqrt(0.025), 2 - 0.05 / math.sqrt(0.025) - 0.05 / math.sqrt(0.0475)]),
        # Adagrad's accumulator starts at 0.1.
        ("adagrad", [2 - 0.05 / math.sqrt(0.35), 2 - 0.05 / math.sqrt(0.35) - 0.05 / math.sqrt(0.6)]),
        # LAMB: Adam's direction (1) scaled to the parameter's norm.
        ("lamb", [2 - 0.1 * 2, 1.8 - 0.1 * 1.8]),
    ],
)
def test_two_steps_by_hand(name: str, expected: list[float]) -> None:
    np.testing.assert_allclose(_steps(_config(name), 2.0, [0.5, 0.5]), expected, rtol=1e-5)


def test_every_name_is_covered_above() -> None:
    covered = {"sgd", "momentum", "nesterov", "adam", "adamw", "rmsprop", "adagrad", "lamb"}
    assert covered == set(OPTIMIZERS)


def test_options_reach_the_optimizer() -> None:
    assert _steps(_config("momentum", momentum=0.0), 2.0, [0.5, 0.5])[1] == pytest.approx(1.9)
    assert _steps(_config("adam", epsilon=0.5), 2.0, [0.5])[0] == pytest.approx(1.95)
    assert _steps(_config("adam", beta1=0.0, beta2=0.0), 2.0, [0.5, -0.25])[1] == pytest.approx(2.0)
    assert _steps(_config("rmsprop", beta2=0.0), 2.0, [0.5])[0] == pytest.approx(1.9)


def test_coupled_decay_is_the_gradient_of_half_lambda_w_squared() -> None:
    # 2 - 0.1·(0.5 + 0.25·2)
    assert _steps(_config("sgd", weight_decay=0.25), 2.0, [0.5]) == pytest.approx([1.9])
    # Adam divides by the gradient's size: decay that cancels the gradient stops it.
    assert _steps(_config("adam", weight_decay=0.25), 2.0, [-0.5]) == pytest.approx([2.0])


def test_decoupled_decay_stays_out_of_the_moments() -> None:
    assert _steps(_config("adamw", weight_decay=0.25), 2.0, [-0.5]) == pytest.approx([2.0 + 0.1 - 0.1 * 0.25 * 2])


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_decay_on_the_first_layer_only(name: str) -> None:
    params = {"convs": {0: {"kernel": jnp.ones(2), "bias": jnp.ones(1)}, 1: {"kernel": jnp.ones(2)}}}
    zero = jax.tree.map(jnp.zeros_like, params)
    transformation = make_optimizer(_config(name, weight_decay=0.5, weight_decay_on="first"))
    updates, _ = transformation.update(zero, transformation.init(params), params)
    np.testing.assert_allclose(updates["convs"][0]["kernel"], -0.05)
    np.testing.assert_allclose(updates["convs"][0]["bias"], -0.05)
    np.testing.assert_array_equal(updates["convs"][1]["kernel"], 0)


def test_the_mask_needs_a_first_layer() -> None:
    with pytest.raises(ValueError, match=r"no parameter's path starts with convs/0 \(there is layers/0/kernel, …\)"):
        first_layer_mask({"layers": {0: {"kernel": jnp.ones(2)}}})


SCHEDULES = {
    "cosine": lambda: optax.cosine_decay_schedule(0.1, 8, alpha=0.2),
    "linear": lambda: optax.linear_schedule(0.1, 0.02, 8),
    "exponential": lambda: optax.exponential_decay(0.1, 8, 0.2, end_value=0.02),
}


@pytest.mark.parametrize("warmup", [None, 4])
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_are_those_of_optax(name, warmup):
    given = {"warmup_epochs": warmup, "schedule_epochs": 8 + (warmup or 0), "final_share": 0.2}
    found = step_size(_config("sgd", learning_rate=0.1, schedule=name, **given))
    expected = SCHEDULES[name]()
    rising = [0.1 * (epoch + 1) / 5 for epoch in range(warmup or 0)]
    falling = [float(expected(epoch)) for epoch in range(12)]
    assert [float(found(epoch)) for epoch in range(12 + (warmup or 0))] == pytest.approx([*rising, *falling], rel=1e-5)
    assert falling[8:] == pytest.approx([0.02] * 4)


def test_without_a_schedule_the_step_size_is_a_number_and_after_a_warm_up_it_stays():
    assert step_size(_config("adam")) == 0.1
    found = step_size(_config("adam", learning_rate=0.3, warmup_epochs=2))
    assert [float(found(epoch)) for epoch in range(4)] == pytest.approx([0.1, 0.2, 0.3, 0.3])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_takes_a_schedule(name):
    """Linear to a half in two epochs: the second step is 3/4 as long as with the constant rate, but for its momentum."""
    options = {"schedule": "linear", "schedule_epochs": 2, "final_share": 0.5}
    plain = OPTIMIZERS[name].options
    options |= {option: 0.0 for option in ("momentum",) if option in plain}
    constant = {option: 0.0 for option in ("momentum",) if option in plain}
    first, second = _steps(_config(name, **constant), 2.0, [0.5, 0.5])
    scheduled_first, scheduled_second = _steps(_config(name, **options), 2.0, [0.5, 0.5])
    assert scheduled_first == pytest.approx(first)
    if name != "lamb":  # whose step is a share of the weight, which it moves
        assert scheduled_second - scheduled_first == pytest.approx(0.75 * (second - first), rel=1e-4)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"learning_rate": 1e-320}, r"learning_rate must be ≥ 1\.18e-38, below which float32 is 0, got 1e-320"),
        ({"learning_rate": 1e-40}, r"learning_rate must be ≥ 1\.18e-38"),  # XLA flushes subnormal numbers to 0
        ({"epsilon": 1e-46}, r"epsilon must be ≥ 1\.18e-38"),
    ],
)
def test_settings_that_cannot_be(given, message):
    with pytest.raises(ConfigError, match=message):
        RunConfig.resolve({f"optimizer.{key}": value for key, value in given.items()})


def test_a_schedule_ends_with_the_run_unless_told_otherwise():
    assert RunConfig.resolve({"optimizer.schedule": "cosine", "train.epochs": 70}).optimizer.schedule_epochs == 70
    assert RunConfig.resolve({"train.epochs": 70}).optimizer.schedule_epochs is None


GIVEN = {
    "data.size": "tiny",
    "model.dropout": 0.0,
    "train.epochs": 8,
    "optimizer.weight_decay": 0.0,
    "optimizer.weight_decay_on": "all",
    "optimizer.learning_rate": 0.05,
    "optimizer.schedule": "cosine",
    "optimizer.warmup_epochs": 3,
    "optimizer.final_share": 0.1,
}


def _by_hand(config: RunConfig) -> Any:
    """Parameters after optax's Adam with the schedule written out, of the plain model."""
    data = prepare_data(config.data)
    graphdef, params, rest = nnx.split(build_model(config, data), nnx.Param, ...)
    rising = [0.05 * (epoch + 1) / 4 for epoch in range(3)]
    falling = [float(optax.cosine_decay_schedule(0.05, 5, alpha=0.1)(epoch)) for epoch in range(5)]
    x, labels, mask = map(jnp.asarray, (data.features, data.labels, data.train_mask))

    @jax.jit
    @jax.grad
    def gradient(params: Any) -> Any:
        return masked_loss(nnx.merge(graphdef, params, rest)(data.graph, x), labels, mask)

    adam = optax.scale_by_adam()
    state = adam.init(params)
    for rate in [*rising, *falling]:
        updates, state = adam.update(gradient(params), state)
        params = jax.tree.map(lambda value, update, rate=rate: value - rate * update, params, updates)
    return params


PIPELINES: dict[str, dict[str, Any]] = {
    "one machine": {},
    "plain": {"single.optimize": False},
    "pipe": {"pipeline.mode": "pipe", "pipeline.servers": 2, "pipeline.intervals": 2},
    "two parameter servers": {"pipeline.mode": "pipe", "pipeline.servers": 2, "pipeline.parameter_servers": 2},
}


@pytest.mark.parametrize("way", PIPELINES)
def test_every_way_to_train_has_the_step_sizes_of_optax(way: str) -> None:
    config = RunConfig.resolve({**GIVEN, **PIPELINES[way]})
    found = Trainer.from_config(config).fit().last_params
    for mine, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(_by_hand(config)), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=2e-4)


def test_more_epochs_alone_would_be_another_schedule(tmp_path: Any) -> None:
    Trainer.from_config(RunConfig.resolve(GIVEN), run_directory=tmp_path / "run").fit()
    longer = RunConfig.resolve(GIVEN, {"train.epochs": 9})
    with pytest.raises(DorylaxError, match=r"optimizer\.schedule_epochs: 8 there, 9 here"):
        Trainer.from_config(longer, run_directory=tmp_path / "run", resume=True).fit()
