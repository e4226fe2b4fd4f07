from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dorylax.graph.graph import Graph
from dorylax.layers import GATConv


def test_by_hand(make_graph: Callable[..., Graph], run: Any) -> None:
    """0 → 1, one head of width 1, W = 1, s = 1, t = 2: vertex 1 attends to 0 and itself, vertex 0 only to itself."""
    conv = GATConv(1, 1, heads=1, use_bias=False, rngs=nnx.Rngs(0))
    conv.kernel[...], conv.attention_source[...], conv.attention_target[...] = jnp.ones((3, 1, 1)) * jnp.array(
        [1.0, 1.0, 2.0]
    ).reshape(3, 1, 1)
    y = run(conv, make_graph([0], [1], 2), jnp.array([[-5.0], [1.0]]))
    scores = np.array([0.2 * (-5 + 2 * 1), 1 + 2 * 1])  # the LeakyReLU's slope on the negative one
    alpha = np.exp(scores) / np.exp(scores).sum()
    np.testing.assert_allclose(y[:, 0], [-5, alpha @ [-5, 1]], rtol=1e-6)


def test_an_explicit_loop_replaces_the_implicit_one(make_graph: Callable[..., Graph], run: Any) -> None:
    conv = GATConv(3, 2, heads=2, rngs=nnx.Rngs(0))
    x = jax.random.normal(jax.random.key(0), (3, 3))
    bare = run(conv, make_graph([0, 1, 2], [1, 2, 0], 3), x)
    some = run(conv, make_graph([0, 1, 2, 1], [1, 2, 0, 1], 3), x)
    every = run(conv, make_graph([0, 1, 2, 0, 1, 2], [1, 2, 0, 0, 1, 2], 3), x)
    np.testing.assert_allclose(some, bare, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(every, bare, rtol=1e-5, atol=1e-6)


def test_large_scores_do_not_overflow(messy_graph: Graph, run: Any) -> None:
    conv = GATConv(3, 2, heads=2, rngs=nnx.Rngs(0))
    x = 1e4 * jax.random.normal(jax.random.key(0), (12, 3))
    assert np.isfinite(run(conv, messy_graph, x)).all()


def test_dropout_falls_on_coefficients_of_edges_and_loops(make_graph: Callable[..., Graph], run: Any) -> None:
    """Vertices that only attend to themselves have α = 1: dropping it zeroes the row, keeping it doubles it."""
    conv = GATConv(2, 2, heads=1, attention_dropout=0.5, rngs=nnx.Rngs(0))
    x = jnp.ones((200, 2))
    z = x @ conv.kernel[...]
    for graph in (make_graph([], [], 200), make_graph(np.arange(200), np.arange(200), 200)):
        conv.train()
        ratio = run(conv, graph, x) / z
        np.testing.assert_allclose(np.sort(np.unique(np.round(ratio, 4))), [0, 2])
        assert 0.35 < (ratio[:, 0] == 0).mean() < 0.65
        conv.eval()
        np.testing.assert_allclose(run(conv, graph, x), z, rtol=1e-6)


def test_coefficients_are_the_same_one_by_one(messy_graph: Graph, run: Any) -> None:
    """With dropout the layer makes a coefficient for each edge, without it none."""
    conv = GATConv(3, 2, heads=2, attention_dropout=1e-7, rngs=nnx.Rngs(0))
    x = jax.random.normal(jax.random.key(0), (12, 3))
    conv.train()
    one_by_one = run(conv, messy_graph, x)
    conv.eval()
    np.testing.assert_allclose(one_by_one, run(conv, messy_graph, x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("concat", [True, False], ids=["concat", "mean"])
@pytest.mark.parametrize("heads", [1, 3])
def test_parity_with_pyg(heads: int, concat: bool, messy_graph: Graph, peers: Any, run: Any) -> None:
    x = np.random.default_rng(0).normal(size=(12, 6)).astype(np.float32)
    theirs = peers.nn.GATConv(6, 4, heads=heads, concat=concat)
    peers.torch.nn.init.normal_(theirs.bias)
    ours = GATConv(6, 4, heads=heads, concat=concat, rngs=nnx.Rngs(0))
    ours.kernel[...] = jnp.asarray(theirs.lin.weight.detach().numpy().T)
    ours.attention_source[...] = jnp.asarray(theirs.att_src.detach().numpy()[0])
    ours.attention_target[...] = jnp.asarray(theirs.att_dst.detach().numpy()[0])
    ours.bias[...] = jnp.asarray(theirs.bias.detach().numpy())
    expected = theirs(peers.torch.tensor(x), peers.edge_index).detach().numpy()
    np.testing.assert_allclose(run(ours, messy_graph, jnp.asarray(x)), expected, atol=1e-5)
