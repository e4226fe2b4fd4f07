from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dorylax.graph.graph import Graph
from dorylax.layers import GCNConv


def test_by_hand(make_graph: Callable[..., Graph], run: Any) -> None:
    """0 → 1 ↔ 2, and 2 has a loop: in-degrees with loops 1, 3, 2 (the loop of 2 is not added again)."""
    conv = GCNConv(1, 1, use_bias=False, kernel_init=jax.nn.initializers.ones, rngs=nnx.Rngs(0))
    y = run(conv, make_graph([0, 2, 1, 2], [1, 1, 2, 2], 3), jnp.array([[1.0], [10.0], [100.0]]))
    d = np.array([1.0, 3.0, 2.0])
    expected = [
        1,
        1 / np.sqrt(d[0] * d[1]) + 10 / d[1] + 100 / np.sqrt(d[1] * d[2]),
        10 / np.sqrt(d[1] * d[2]) + 100 / 2,
    ]
    np.testing.assert_allclose(y[:, 0], expected, rtol=1e-6)


def test_degree_zero_by_weights_is_finite_with_its_gradient(make_graph: Callable[..., Graph], run: Any) -> None:
    graph = make_graph([0, 1], [0, 1], 2)  # only loops, so that nothing is added
    conv = GCNConv(2, 2, use_bias=False, rngs=nnx.Rngs(0))
    weight = jnp.array([0.0, 1.0])
    np.testing.assert_array_equal(run(conv, graph, jnp.ones((2, 2)), weight)[0], 0)
    assert np.isfinite(jax.jit(jax.grad(lambda w: conv(graph, jnp.ones((2, 2)), w).sum()))(weight)).all()


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("use_bias", [False, True], ids=["no bias", "bias"])
def test_parity_with_pyg(weighted: bool, use_bias: bool, messy_graph: Graph, peers: Any, run: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 6)).astype(np.float32)
    weight = rng.uniform(0.1, 2, messy_graph.num_edges).astype(np.float32) if weighted else None
    theirs = peers.nn.GCNConv(6, 4, bias=use_bias)
    ours = GCNConv(6, 4, use_bias=use_bias, rngs=nnx.Rngs(0))
    ours.kernel[...] = jnp.asarray(theirs.lin.weight.detach().numpy().T)
    if use_bias:
        peers.torch.nn.init.normal_(theirs.bias)
        ours.bias[...] = jnp.asarray(theirs.bias.detach().numpy())
    their_weight = None if weight is None else peers.torch.tensor(weight)
    expected = theirs(peers.torch.tensor(x), peers.edge_index, their_weight).detach().numpy()
    our_weight = None if weight is None else jnp.asarray(weight)
    np.testing.assert_allclose(run(ours, messy_graph, jnp.asarray(x), our_weight), expected, atol=1e-5)
