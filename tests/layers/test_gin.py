from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dorylax.graph.graph import Graph
from dorylax.layers import GINConv


@pytest.mark.parametrize("train_epsilon", [False, True], ids=["fixed", "trained"])
def test_by_hand(train_epsilon: bool, make_graph: Callable[..., Graph], run: Any) -> None:
    """0 → 2 ← 1 and a loop at 1, ε = 1/2, W_1 = -2, b_1 = 40, W_2 = 1, b_2 = 100: the ReLU cuts vertex 2."""
    conv = GINConv(1, 1, epsilon=0.5, train_epsilon=train_epsilon, rngs=nnx.Rngs(0))
    conv.hidden.kernel[...], conv.hidden.bias[...] = jnp.full((1, 1), -2.0), jnp.full(1, 40.0)
    conv.out.kernel[...], conv.out.bias[...] = jnp.ones((1, 1)), jnp.full(1, 100.0)
    y = run(conv, make_graph([0, 1, 1], [2, 2, 1], 3), jnp.array([[1.0], [4.0], [20.0]]))
    np.testing.assert_allclose(y[:, 0], [100 + 40 - 2 * 1.5, 100 + 40 - 2 * (1.5 * 4 + 4), 100], rtol=1e-6)


def test_epsilon_is_a_parameter_when_trained() -> None:
    def paths(conv: GINConv) -> set[tuple[object, ...]]:
        return {path for path, _ in nnx.to_flat_state(nnx.state(conv, nnx.Param))}

    fixed, trained = (GINConv(3, 2, train_epsilon=train, rngs=nnx.Rngs(0)) for train in (False, True))
    assert paths(trained) - paths(fixed) == {("epsilon",)}
    assert trained.epsilon.shape == ()


@pytest.mark.parametrize("train_epsilon", [False, True], ids=["fixed", "trained"])
def test_parity_with_pyg(train_epsilon: bool, messy_graph: Graph, peers: Any, run: Any) -> None:
    x = np.random.default_rng(0).normal(size=(12, 6)).astype(np.float32)
    perceptron = peers.torch.nn.Sequential(
        peers.torch.nn.Linear(6, 5), peers.torch.nn.ReLU(), peers.torch.nn.Linear(5, 4)
    )
    theirs = peers.nn.GINConv(perceptron, eps=0.25, train_eps=train_epsilon)
    ours = GINConv(6, 4, hidden_features=5, epsilon=0.25, train_epsilon=train_epsilon, rngs=nnx.Rngs(0))
    theirs.eps.data.fill_(0.25)
    for mine, linear in ((ours.hidden, perceptron[0]), (ours.out, perceptron[2])):
        mine.kernel[...] = jnp.asarray(linear.weight.detach().numpy().T)
        mine.bias[...] = jnp.asarray(linear.bias.detach().numpy())
    expected = theirs(peers.torch.tensor(x), peers.edge_index).detach().numpy()
    np.testing.assert_allclose(run(ours, messy_graph, jnp.asarray(x)), expected, atol=1e-5)
