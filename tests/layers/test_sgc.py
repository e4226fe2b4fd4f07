from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dorylax.graph.graph import Graph
from dorylax.layers import GCNConv, SGConv


def test_one_propagation_is_a_graph_convolution(messy_graph: Graph, run: Any) -> None:
    simple, gcn = SGConv(4, 3, num_propagations=1, rngs=nnx.Rngs(0)), GCNConv(4, 3, rngs=nnx.Rngs(0))
    np.testing.assert_array_equal(simple.kernel[...], gcn.kernel[...])
    x = jax.random.normal(jax.random.key(0), (12, 4))
    weight = jax.random.uniform(jax.random.key(1), (messy_graph.num_edges,))
    np.testing.assert_allclose(
        run(simple, messy_graph, x, weight), run(gcn, messy_graph, x, weight), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("use_bias", [False, True], ids=["no bias", "bias"])
def test_parity_with_pyg(use_bias: bool, messy_graph: Graph, peers: Any, run: Any) -> None:
    x = np.random.default_rng(0).normal(size=(12, 6)).astype(np.float32)
    theirs = peers.nn.SGConv(6, 4, K=3, bias=use_bias)
    ours = SGConv(6, 4, num_propagations=3, use_bias=use_bias, rngs=nnx.Rngs(0))
    ours.kernel[...] = jnp.asarray(theirs.lin.weight.detach().numpy().T)
    if use_bias:
        peers.torch.nn.init.normal_(theirs.lin.bias)
        ours.bias[...] = jnp.asarray(theirs.lin.bias.detach().numpy())
    expected = theirs(peers.torch.tensor(x), peers.edge_index).detach().numpy()
    np.testing.assert_allclose(run(ours, messy_graph, jnp.asarray(x)), expected, atol=1e-5)
