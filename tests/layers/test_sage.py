from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dorylax.graph.graph import Graph
from dorylax.layers import SAGEConv


@pytest.mark.parametrize(("aggregation", "neighbours"), [("mean", 3.0), ("sum", 6.0), ("max", 5.0)])
def test_by_hand(aggregation: str, neighbours: float, make_graph: Callable[..., Graph], run: Any) -> None:
    """0 → 2 ← 1, W_self = 10, W_neighbours = 1, b = 1000."""
    conv = SAGEConv(1, 1, aggregation=aggregation, bias_init=jax.nn.initializers.constant(1000), rngs=nnx.Rngs(0))
    conv.kernel_self[...] = jnp.full((1, 1), 10.0)
    conv.kernel_neighbours[...] = jnp.ones((1, 1))
    y = run(conv, make_graph([0, 1], [2, 2], 3), jnp.array([[1.0], [5.0], [7.0]]))
    np.testing.assert_allclose(y[:, 0], [1010, 1050, 1070 + neighbours])


@pytest.mark.parametrize("aggregation", ["mean", "sum", "max"])
@pytest.mark.parametrize("use_bias", [False, True], ids=["no bias", "bias"])
def test_parity_with_pyg(aggregation: str, use_bias: bool, messy_graph: Graph, peers: Any, run: Any) -> None:
    x = np.random.default_rng(0).normal(size=(12, 6)).astype(np.float32)
    theirs = peers.nn.SAGEConv(6, 4, aggr=aggregation, bias=use_bias)
    ours = SAGEConv(6, 4, aggregation=aggregation, use_bias=use_bias, rngs=nnx.Rngs(0))
    ours.kernel_neighbours[...] = jnp.asarray(theirs.lin_l.weight.detach().numpy().T)
    ours.kernel_self[...] = jnp.asarray(theirs.lin_r.weight.detach().numpy().T)
    if use_bias:
        ours.bias[...] = jnp.asarray(theirs.lin_l.bias.detach().numpy())
    expected = theirs(peers.torch.tensor(x), peers.edge_index).detach().numpy()
    np.testing.assert_allclose(run(ours, messy_graph, jnp.asarray(x)), expected, atol=1e-5)
