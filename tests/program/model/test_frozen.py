"""What the user froze trains frozen; what is switched off as a whole is said."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

from dorylax.layers.dropout import Dropout
from dorylax.program.model import flax_linen, flax_nnx
from dorylax.program.model.kinds import take_apart

X = np.arange(15, dtype=np.float32).reshape(5, 3)
IDS = np.arange(5)


class Net(nnx.Module):
    """A part that is frozen (or not) before a part that trains."""

    def __init__(self, frozen: Any, **flags: Any) -> None:
        rngs = nnx.Rngs(0)
        self.first = frozen(rngs=rngs, **flags)
        self.leave = nnx.Linear(3, 3, rngs=rngs)
        self.last = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, graph: Any, x: Any) -> Any:
        return self.last(self.leave(self.first(jnp.asarray(x))))


def normed(rngs: nnx.Rngs, **flags: Any) -> nnx.Module:
    return nnx.BatchNorm(3, momentum=0.5, rngs=rngs, **flags)


def dropped(rngs: nnx.Rngs, **flags: Any) -> nnx.Module:
    return nnx.Dropout(0.5, rngs=rngs, **flags)


class Inner(nnx.Module):
    """A part with layers of its own, and dropout by row."""

    def __init__(self, *, rngs: nnx.Rngs) -> None:
        self.norm = nnx.BatchNorm(3, momentum=0.5, rngs=rngs)
        self.drop = Dropout(0.5, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.drop(self.norm(x), jnp.asarray(IDS))


def frozen_part(rngs: nnx.Rngs) -> nnx.Module:
    part = Inner(rngs=rngs)
    part.eval()
    return part


def chosen_layers(rngs: nnx.Rngs) -> nnx.Module:
    part = Inner(rngs=rngs)
    part.set_attributes(nnx.BatchNorm, use_running_average=True)
    part.set_attributes(Dropout, deterministic=True)
    return part


def first_of(model: Any) -> tuple[Any, Any]:
    """The first part's output in training, and the state afterwards."""
    model.leave.kernel.set_value(jnp.eye(3))
    model.leave.bias.set_value(jnp.zeros(3))
    model.last.rate = 0.0
    parts = flax_nnx.take_apart(model)
    return parts.structure.apply_train(parts.params, parts.streams, parts.state, None, X)


@pytest.mark.parametrize(
    ("part", "flags"),
    [
        (normed, {"use_running_average": True}),
        (dropped, {"deterministic": True}),
        (frozen_part, {}),
        (chosen_layers, {}),
    ],
)
def test_a_frozen_layer_stays_frozen(part: Any, flags: dict[str, bool]) -> None:
    output, state = first_of(Net(part, **flags))
    np.testing.assert_allclose(output, X, rtol=1e-4)  # statistics 0 and 1, and nothing dropped
    for leaf, start in zip(
        jax.tree.leaves(state), jax.tree.leaves(flax_nnx.take_apart(Net(part, **flags)).state), strict=True
    ):
        np.testing.assert_array_equal(leaf, start)


@pytest.mark.parametrize(("part", "flag"), [(normed, "use_running_average"), (dropped, "deterministic"), (Inner, "")])
@pytest.mark.parametrize("value", [False, None])
def test_a_layer_that_is_not_frozen_trains(part: Any, flag: str, value: bool | None) -> None:
    """None, which leaves it to the call, trains too."""
    output, _ = first_of(Net(part, **({flag: value} if flag else {})))
    assert not np.allclose(output, X, rtol=0.1)


@pytest.mark.parametrize("flag", ["use_running_average", "deterministic"])
def test_evaluation_freezes_all(flag: str) -> None:
    parts = flax_nnx.take_apart(Net(normed if flag == "use_running_average" else dropped, **{flag: False}))
    one, other = (parts.structure.apply_evaluate(parts.params, parts.streams, parts.state, None, X) for _ in range(2))
    np.testing.assert_array_equal(one, other)


def test_a_model_in_evaluation_mode_is_told() -> None:
    model = Net(dropped)
    assert flax_nnx.take_apart(model).switched_off == ""
    model.eval()
    assert flax_nnx.take_apart(model).switched_off == (
        "is in evaluation mode, and trains without its dropout of rate 0.5: call model.train() before"
    )
    model.first.deterministic = False
    assert flax_nnx.take_apart(model).switched_off == ""  # one layer that trains: the other is frozen by choice


def test_frozen_statistics_alone_are_a_choice() -> None:
    model = Net(normed, use_running_average=True)
    model.last.rate = 0.0
    model.eval()
    assert flax_nnx.take_apart(model).switched_off == ""


class WithFlag(nnx.Module):
    def __init__(self) -> None:
        self.drop = nnx.Dropout(0.5, rngs=nnx.Rngs(0))
        self.leave = nnx.Linear(3, 3, rngs=nnx.Rngs(0))

    def __call__(self, graph: Any, x: Any, *, train: bool, deterministic: bool | None = None) -> Any:
        assert deterministic is None
        return self.leave(self.drop(x, deterministic=not train))


def test_an_nnx_call_is_told_whether_it_trains() -> None:
    parts = flax_nnx.take_apart(WithFlag())
    exact = parts.structure.apply_evaluate(parts.params, parts.streams, parts.state, None, X)
    trained, _ = parts.structure.apply_train(parts.params, parts.streams, parts.state, None, X)
    assert not np.allclose(exact, trained)


class Attribute(linen.Module):
    deterministic: bool | None = None

    @linen.compact
    def __call__(self, graph: Any, x: Any, deterministic: bool | None = None) -> Any:
        flag = linen.merge_param("deterministic", self.deterministic, deterministic)
        return linen.Dropout(0.5, deterministic=flag)(linen.Dense(3)(x))


@pytest.mark.parametrize(("value", "drops"), [(None, True), (False, True), (True, False)])
def test_a_linen_modules_own_flag_stays_and_evaluation_overrides_it(value: bool | None, drops: bool) -> None:
    parts = flax_linen.take_apart(Attribute(value), None, X)
    params = jax.tree.map(lambda leaf: jnp.ones(leaf.shape), parts.params)
    trained, _ = parts.structure.apply_train(params, parts.streams, {}, None, X)
    exact = parts.structure.apply_evaluate(params, parts.streams, {}, None, X)
    np.testing.assert_allclose(exact, X @ np.ones((3, 3)) + 1)
    assert np.allclose(trained, exact) == (not drops)
    assert bool(parts.switched_off) == (not drops)


def test_a_linen_module_that_is_switched_off_says_by_what() -> None:
    assert flax_linen.take_apart(Attribute(True), None, X).switched_off == (
        "is made with deterministic=True, and trains so: give deterministic=False where it should train as usual"
    )


def flagged(params: Any, graph: Any, x: Any, *, key: Any = None, train: bool = True) -> Any:
    return params["w"] * (x + train)


def test_what_a_partial_has_given_is_not_overridden() -> None:
    frozen = functools.partial(flagged, train=False, key=jax.random.key(7))
    parts = take_apart(frozen, None, params={"w": np.ones(3, np.float32)})
    assert parts.name == "flagged"
    assert parts.streams == {}
    np.testing.assert_array_equal(parts.structure.apply_train(parts.params, {}, {}, None, X)[0], X)
