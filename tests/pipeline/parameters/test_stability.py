from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import optax
import pytest
from support.gate_replica import decisions
from support.pipelines import messy_data, one_compilation, running

from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.parameters.stability import (
    PATIENCE,
    WINDOW,
    Stability,
    StabilityGate,
)
from dorylax.serverless.config import TensorConfig

UNKNOWN = WINDOW + 1
"""Updates after which q is still unknown: it needs two moves besides those of the window."""
CLOSED = UNKNOWN + PATIENCE - 1
"""Updates after which a gate is still closed whatever they are."""
compilation = one_compilation(40, 40)


def tree(flat: np.ndarray) -> dict[str, np.ndarray]:
    """Parameters of several leaves; integers are not trained."""
    flat = flat.astype(np.float32)
    return {"a": flat[:1], "b": flat[1:].reshape(-1, 1), "steps": np.full(2, 7, np.int32)}


def followed(weights: Sequence[np.ndarray], gradients: Sequence[np.ndarray]) -> list[Stability]:
    """The gate's state after each update."""
    gate, found = StabilityGate(), list[Stability]()
    last = gate.start(tree(weights[0]))
    assert not last.open
    for k, gradient in enumerate(gradients):
        last = gate.after(last, tree(weights[k]), tree(gradient), tree(weights[k + 1]))
        found.append(last)
    return found


def trained(
    optimizer: optax.GradientTransformation,
    eigenvalues: np.ndarray,
    start: np.ndarray,
    updates: int,
    noise: float = 0.0,
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Weights and gradients of training on a quadratic, in float64."""
    random, weights, gradients = np.random.default_rng(7), [start], list[np.ndarray]()
    with jax.enable_x64():
        state = optimizer.init(start)
        for _ in range(updates):
            gradients.append(eigenvalues * weights[-1] + noise * random.normal(size=len(start)))
            update, state = optimizer.update(gradients[-1], state, weights[-1])
            weights.append(weights[-1] + np.asarray(update))
    return weights, gradients


def given(quotients: Sequence[float]) -> str:
    """Of each update, whether the gate is open, where its q is set: one weight that moves evenly, and gradients to fit."""
    gradients, mean = [np.ones(2)] * 2, 0.19
    for count, quotient in enumerate(quotients, start=2):
        gradients.append(gradients[-1] - quotient * mean / (1 - 0.9**count))
        mean = 0.9 * mean + 0.1 * gradients[-1][0]
    weights = [np.full(2, 1.0 - k) for k in range(len(gradients) + 1)]
    return "".join("-+"[int(one.open)] for one in followed(weights, gradients))[2:]


ADAM = optax.adam(0.01)
OPTIMIZERS: dict[str, Callable[[float], optax.GradientTransformation]] = {
    "adam": optax.adam,
    "adamw": optax.adamw,
    "sgd": optax.sgd,
    "momentum": lambda rate: optax.sgd(rate, momentum=0.9),
    "rmsprop": optax.rmsprop,
}


@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_it_decides_as_its_replica_does(name: str, noise: float) -> None:
    eigenvalues, start = np.geomspace(0.01, 30, 40), np.random.default_rng(3).normal(size=40)
    weights, gradients = trained(OPTIMIZERS[name](0.03), eigenvalues, start, 60, noise)
    found, expected = followed(weights, gradients), decisions(weights, gradients, sizes=[1, 39])
    np.testing.assert_allclose(
        [one.quotient for one in found], [one.curvature for one in expected], rtol=2e-3, atol=2e-4
    )
    assert [bool(one.open) for one in found] == [one.is_open for one in expected]


@pytest.mark.parametrize("seed", range(16))
def test_it_decides_as_its_replica_does_whatever_the_curvature(seed: int) -> None:
    """Of a small array and a wide one: calm or not, of either sign, near a limit or far, moving or still, in the end NaN."""
    random = np.random.default_rng(seed)
    gradients, mean = [np.ones(10)] * 2, np.full(10, 0.19)
    steps = np.r_[random.choice([0.0, 0.01, 1.0]), np.full(9, random.choice([1.0] * 9 + [0.0]))]
    while len(gradients) < 90:
        low, high = random.choice([0.0, 0.04, 0.15, -0.6, 0.6]), random.choice([0.0, 0.5, 1.5, 4.0])
        for _ in range(random.integers(1, 30)):
            quotients = np.r_[high if steps[0] < 1 else low, np.full(9, low)]
            gradients.append(gradients[-1] - quotients * mean / (1 - 0.9 ** len(gradients)))
            mean = 0.9 * mean + 0.1 * gradients[-1]
    gradients += [np.full(10, random.choice([np.nan, np.inf, 1.0]))] * 2
    weights = [-steps * k for k in range(len(gradients) + 1)]
    with np.errstate(invalid="ignore"):  # of infinities
        expected = [one.is_open for one in decisions(weights, gradients, sizes=[1, 9])]
    assert [bool(one.open) for one in followed(weights, gradients)] == expected


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_short_steps_open_it_and_long_ones_do_not(name: str) -> None:
    """Whatever the optimizer's preconditioner is. Long steps swing, but for RMSprop's, which shrink with the first one."""
    start = np.full(2, 0.01)
    for rate, expected in ((1e-4, True), (0.4, False))[: 1 if name == "rmsprop" else 2]:
        weights, gradients = trained(OPTIMIZERS[name](rate), np.array([5.0, 6.0]), start, 30)
        states = [bool(one.open) for one in followed(weights, gradients)[CLOSED + 1 :]]
        assert states == [expected] * len(states), rate


def test_it_measures_the_preconditioned_eigenvalue() -> None:
    """Of a quadratic with one eigenvalue λ, heavy-ball momentum has q = step size / (1 - momentum) · λ."""
    weights, gradients = trained(optax.sgd(0.001, momentum=0.9), np.full(2, 4.0), np.array([1.0, -2.0]), 90)
    assert followed(weights, gradients)[-1].quotient == pytest.approx(0.001 / 0.1 * 4, rel=0.01)


def test_noise_of_gradients_is_no_curvature() -> None:
    """With no curvature at all: the product of the last move and the gradient's change would give more than 1."""
    random, quotients, products = np.random.default_rng(0), list[float](), list[float]()
    for _ in range(200):
        start = random.normal(size=50)
        weights, gradients = [start], [1 + 3 * random.normal(size=50) for _ in range(20)]
        state = ADAM.init(start)
        for gradient in gradients:
            update, state = ADAM.update(gradient, state, weights[-1])
            weights.append(weights[-1] + np.asarray(update, np.float64))
        quotients.append(followed(weights, gradients)[-1].quotient)
        move = weights[-2] - weights[-3]
        products.append(-(move @ (gradients[-1] - gradients[-2])) / (move @ np.mean(gradients[-10:], axis=0)))
    assert abs(np.mean(quotients)) < 4 * np.std(quotients) / np.sqrt(200)
    assert np.mean(products) > 0.5


def test_each_closing_doubles_the_calm_that_opens_it_again() -> None:
    """Calm is counted from the update on at which no term above the limit is in the window any more."""
    found = given(([0.05] * 50 + [1.0] * 6) * 3)
    pauses = [len(part) for part in found.split("+") if part]
    assert len(pauses) == 4
    assert pauses[0] == CLOSED - 2
    assert pauses[2] - pauses[1] == 2 * PATIENCE


@pytest.mark.parametrize("options", [{}, {"predict_weights": "none"}, {"staleness": 0}, {"stability_gate": False}])
def test_a_closed_gate_gives_the_newest_weights_and_exact_rows(options: dict[str, Any]) -> None:
    """And its epochs take as long as those of `pipe`."""
    base: dict[str, Any] = {"servers": 2, "intervals": 3, "parameter_servers": 2, "clock": "virtual", "edge_chunk": 40}
    base["tensor"] = TensorConfig(placement="functions")
    with running("gcn", messy_data(40, 160), PipelineConfig(**base)) as run:
        synchronous = sum(run.run_epoch().seconds for _ in range(UNKNOWN))
    with running("gcn", messy_data(40, 160), PipelineConfig(**base | {"mode": "async"} | options)) as run:
        run.barrier(UNKNOWN)
        seconds = sum(run.run_epoch().seconds for _ in range(UNKNOWN))
        counters, ahead = run.counters(), run.epochs_ahead
    if options.get("stability_gate", True):
        assert (counters["pulls_held"], counters["stale_rows"], ahead) == (UNKNOWN * 6, 0, 0)
        assert seconds == pytest.approx(synchronous, rel=0.02)
    else:
        assert (counters["pulls_held"], ahead) == (0, None)
        assert counters["stale_rows"] > 0
        assert seconds < 0.95 * synchronous
