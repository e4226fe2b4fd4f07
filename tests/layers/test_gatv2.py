from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dorylax.graph.graph import Graph
from dorylax.layers import GATv2Conv


def test_by_hand(make_graph: Callable[..., Graph], run: Any) -> None:
    """0 → 1, one head of width 2, W_l = 1, W_r = 2, a = (1, -1): vertex 1 attends to 0 and itself."""
    conv = GATv2Conv(1, 2, heads=1, use_bias=False, rngs=nnx.Rngs(0))
    conv.kernel_source[...] = jnp.array([[1.0, 1.0]])
    conv.kernel_target[...] = jnp.array([[2.0, 0.0]])
    conv.attention[...] = jnp.array([[1.0, -1.0]])
    y = run(conv, make_graph([0], [1], 2), jnp.array([[-5.0], [1.0]]))
    # For the neighbour: LeakyReLU(-5 + 2·1) - LeakyReLU(-5); for the vertex itself: LeakyReLU(1 + 2·1) - LeakyReLU(1).
    scores = np.array([0.2 * -3 - 0.2 * -5, 3.0 - 1.0])
    alpha = np.exp(scores) / np.exp(scores).sum()
    np.testing.assert_allclose(y[0], [-5, -5], rtol=1e-6)
    np.testing.assert_allclose(y[1], np.repeat(alpha @ [-5, 1], 2), rtol=1e-5)


def test_vertices_rank_the_same_neighbours_differently(make_graph: Callable[..., Graph], run: Any) -> None:
    """The paper's point: with W = I, 2 prefers 0 and 3 prefers 1. The scores of GATConv cannot do that."""
    conv = GATv2Conv(2, 2, heads=1, share_weights=True, use_bias=False, negative_slope=0.0, rngs=nnx.Rngs(0))
    conv.kernel_source[...] = jnp.eye(2)
    conv.attention[...] = jnp.array([[50.0, 50.0]])
    x = jnp.array([[1.0, 0.0], [0.0, 1.0], [1.0, -1.0], [-1.0, 1.0]])
    y = run(conv, make_graph([0, 1, 0, 1, 2, 3], [2, 2, 3, 3, 2, 3], 4), x)
    # At 2, neighbour 0 scores (1+1)+0, neighbour 1 1+0, itself 2+0; at 3, neighbour 1 and itself score 2.
    np.testing.assert_allclose(y[2:], [(x[0] + x[2]) / 2, (x[1] + x[3]) / 2], atol=1e-5)


@pytest.mark.parametrize("share_weights", [False, True], ids=["two matrices", "shared"])
@pytest.mark.parametrize("form", [(1, True, False), (3, True, True), (3, False, True)])
def test_parity_with_pyg(
    form: tuple[int, bool, bool], share_weights: bool, messy_graph: Graph, peers: Any, run: Any
) -> None:
    heads, concat, use_bias = form
    x = np.random.default_rng(0).normal(size=(12, 6)).astype(np.float32)
    theirs = peers.nn.GATv2Conv(6, 4, heads=heads, concat=concat, share_weights=share_weights, bias=use_bias)
    ours = GATv2Conv(6, 4, heads=heads, concat=concat, share_weights=share_weights, use_bias=use_bias, rngs=nnx.Rngs(0))
    ours.attention[...] = jnp.asarray(theirs.att.detach().numpy()[0])
    pairs = [(ours.kernel_source, theirs.lin_l.weight), (ours.kernel_target, theirs.lin_r.weight)]
    if use_bias:
        biases = [
            (ours.bias_source, theirs.lin_l.bias),
            (ours.bias_target, theirs.lin_r.bias),
            (ours.bias, theirs.bias),
        ]
        for _, tensor in biases:
            peers.torch.nn.init.normal_(tensor)
        pairs += biases
    for param, tensor in pairs:
        if param is not None:
            param[...] = jnp.asarray(tensor.detach().numpy().T)
    expected = theirs(peers.torch.tensor(x), peers.edge_index).detach().numpy()
    np.testing.assert_allclose(run(ours, messy_graph, jnp.asarray(x)), expected, atol=1e-5)
