from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen

from dorylax.program.model.flax_linen import take_apart

X = np.ones((5, 3), np.float32)
SHAPES = jax.ShapeDtypeStruct(X.shape, X.dtype)


class Training(linen.Module):
    @linen.compact
    def __call__(self, graph: Any, x: Any, *, train: bool) -> Any:
        self.sow("intermediates", "x", x)
        return linen.Dropout(0.5, deterministic=not train)(linen.Dense(2)(x))


class Deterministic(linen.Module):
    @linen.compact
    def __call__(self, graph: Any, x: Any, deterministic: bool = True) -> Any:
        return linen.Dropout(0.5, deterministic=deterministic)(linen.Dense(2)(x))


class Normed(linen.Module):
    @linen.compact
    def __call__(self, graph: Any, x: Any, train: bool) -> Any:
        return linen.Dense(2)(linen.BatchNorm(use_running_average=not train, momentum=0.5)(x))


class NoisyTwice(linen.Module):
    @linen.compact
    def __call__(self, graph: Any, x: Any) -> Any:
        return linen.Dense(2)(x) + jax.random.normal(self.make_rng("noise")) + jax.random.normal(self.make_rng("more"))


class Bare(linen.Module):
    def __call__(self, graph: Any, x: Any) -> Any:
        return x


def filled(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.full(leaf.shape, 0.5, leaf.dtype), tree)


@pytest.mark.parametrize("module", [Training(), Deterministic()])
def test_the_flag_turns_dropout_on_and_off(module: linen.Module) -> None:
    parts = take_apart(module, None, SHAPES)
    params = filled(parts.params)
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(parts.params))
    assert parts.state == {}  # nothing sown
    exact = parts.structure.apply_evaluate(params, parts.streams, {}, None, X)
    np.testing.assert_array_equal(exact, np.full((5, 2), 2.0))
    trained, state = parts.structure.apply_train(params, parts.streams, {}, None, X)
    assert set(np.unique(trained)) == {0.0, 4.0}
    assert state == {}


def test_other_variables_are_state() -> None:
    parts = take_apart(Normed(), None, SHAPES)
    assert set(parts.state) == {"batch_stats"}
    params, state = filled(parts.params), filled(parts.state)
    _, new = parts.structure.apply_train(params, parts.streams, state, None, X)
    mean = jax.tree.leaves(new["batch_stats"])[0]
    np.testing.assert_array_equal(mean, np.full(3, 0.75))
    assert jax.tree.structure(new) == jax.tree.structure(parts.state)
    assert parts.structure.apply_evaluate(params, parts.streams, state, None, X).shape == (5, 2)


def test_streams_have_the_names_given() -> None:
    parts = take_apart(NoisyTwice(), None, SHAPES, rngs=("noise", "more"))
    assert set(parts.streams) == {"noise", "more"}
    keys = [np.asarray(jax.random.key_data(key)).tolist() for key in parts.streams.values()]
    assert keys[0] != keys[1]
    with pytest.raises(Exception, match="more"):
        take_apart(NoisyTwice(), None, SHAPES, rngs=("noise",)).structure.apply_train(
            filled(parts.params), {"noise": parts.streams["noise"]}, {}, None, X
        )


def test_no_parameters() -> None:
    with pytest.raises(ValueError, match="model Bare has no parameters: there is nothing to train"):
        take_apart(Bare(), None, SHAPES)
