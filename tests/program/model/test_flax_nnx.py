from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dorylax.program.model.flax_nnx import put_back, take_apart


class Net(nnx.Module):
    def __init__(self, scale: float = 1.0) -> None:
        rngs = nnx.Rngs(0)
        self.layers = nnx.List([nnx.Linear(3, 4, rngs=rngs), nnx.Linear(4, 2, rngs=rngs)])
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        self.calls = nnx.Variable(jnp.int32(0))
        self.scale = scale

    def __call__(self, graph: Any, x: Any) -> Any:
        self.calls[...] += 1
        h = self.drop(self.layers[0](x))
        self.hidden = nnx.Intermediate(h)
        return self.scale * self.layers[1](h)


X = np.ones((5, 3), np.float32)


def test_trees_are_plain_dicts() -> None:
    parts = take_apart(Net())
    assert set(parts.params) == {"layers"}
    assert set(parts.params["layers"]) == {0, 1}
    assert parts.params["layers"][1]["kernel"].shape == (4, 2)
    assert parts.state == {"calls": 0}
    kinds = [jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) for leaf in jax.tree.leaves(parts.streams)]
    assert sorted(set(kinds)) == [False, True]  # keys and counters


def test_training_drops_and_counts_evaluation_does_neither() -> None:
    model = Net()
    parts = take_apart(model)
    outputs, state = parts.structure.apply_train(parts.params, parts.streams, parts.state, None, X)
    assert int(state["calls"]) == 1
    assert set(state) == {"calls"}  # neither counters of dropout nor what a call leaves behind
    exact = parts.structure.apply_evaluate(parts.params, parts.streams, parts.state, None, X)
    assert not np.allclose(outputs, exact)
    model.eval()
    np.testing.assert_array_equal(exact, model(None, X))
    assert int(model.calls[...]) == 1  # by this call alone


def test_the_model_stays_as_it_is() -> None:
    model = Net()
    model.eval()
    model(None, X)
    take_apart(model)
    assert model.drop.deterministic
    assert "hidden" in vars(model)


def test_structures_are_equal_where_settings_are() -> None:
    assert take_apart(Net()).structure == take_apart(Net()).structure
    assert take_apart(Net()).structure != take_apart(Net(2.0)).structure


def test_put_back() -> None:
    model = Net()
    parts = take_apart(model)
    put_back(model, jax.tree.map(lambda leaf: leaf + 1, parts.params), {"calls": np.int32(7)})
    np.testing.assert_array_equal(model.layers[1].bias[...], [1, 1])
    assert int(model.calls[...]) == 7


class Bare(nnx.Module):
    def __call__(self, graph: Any, x: Any) -> Any:
        return x


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match=r"model Bare has no parameters \(nnx.Param\)"):
        take_apart(Bare())
    with pytest.raises(TypeError, match=r"called as model\(graph, x\), got Rngs"):
        take_apart(nnx.Rngs(0))
    with pytest.raises(TypeError, match="got Net"):
        take_apart(Net)
