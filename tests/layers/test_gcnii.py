from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dorylax.graph.graph import Graph
from dorylax.layers import GCNII, GCN2Conv


def test_by_hand(make_graph: Callable[..., Graph], run: Any) -> None:
    """One vertex: Ã = 1, so that h = (1 - α) x + α x_0."""
    conv = GCN2Conv(1, alpha=0.25, theta=2.0, layer=4, rngs=nnx.Rngs(0))
    conv.kernel[...] = jnp.array([[3.0]])
    y = run(conv, make_graph([], [], 1), jnp.array([[8.0]]), jnp.array([[4.0]]))
    beta, h = math.log(2 / 4 + 1), 0.75 * 8 + 0.25 * 4
    np.testing.assert_allclose(y, [[(1 - beta) * h + beta * 3 * h]], rtol=1e-6)


def test_first_rows_of_another_width_are_refused(messy_graph: Graph) -> None:
    with pytest.raises((ValueError, TypeError), match=r"12, ?2"):
        GCN2Conv(3, rngs=nnx.Rngs(0))(messy_graph, jnp.ones((12, 3)), jnp.ones((12, 2)))


@pytest.mark.parametrize("share_weights", [True, False], ids=["shared", "separate"])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_parity_with_pyg(share_weights: bool, weighted: bool, messy_graph: Graph, peers: Any, run: Any) -> None:
    rng = np.random.default_rng(0)
    x, first = rng.normal(size=(2, 12, 6)).astype(np.float32)
    weight = rng.uniform(0.1, 2, messy_graph.num_edges).astype(np.float32) if weighted else None
    theirs = peers.nn.GCN2Conv(6, alpha=0.3, theta=0.7, layer=3, shared_weights=share_weights)
    ours = GCN2Conv(6, alpha=0.3, theta=0.7, layer=3, share_weights=share_weights, rngs=nnx.Rngs(0))
    ours.kernel[...] = jnp.asarray(theirs.weight1.detach().numpy())
    if not share_weights:
        ours.kernel_initial[...] = jnp.asarray(theirs.weight2.detach().numpy())
    tensors = [None if a is None else peers.torch.tensor(a) for a in (x, first, weight)]
    expected = theirs(tensors[0], tensors[1], peers.edge_index, tensors[2]).detach().numpy()
    arrays = [None if a is None else jnp.asarray(a) for a in (x, first, weight)]
    np.testing.assert_allclose(run(ours, messy_graph, *arrays), expected, atol=1e-5)


def test_every_layer_reads_the_first_rows(messy_graph: Graph, run: Any) -> None:
    """α = 1 and W = 0 leave (1 - β) x_0 of the last layer, whatever the layers before it gave."""
    model = GCNII(4, 4, 4, num_layers=3, alpha=1.0, theta=0.5, dropout=0.0, rngs=nnx.Rngs(0))
    for linear in (model.linear_in, model.linear_out):
        linear.kernel[...] = jnp.eye(4)
    for conv in model.convs:
        conv.kernel[...] = jnp.zeros((4, 4))
    x = jnp.abs(jax.random.normal(jax.random.key(0), (12, 4)))
    np.testing.assert_allclose(run(model, messy_graph, x), (1 - math.log(0.5 / 3 + 1)) * x, rtol=1e-6)
    assert len(model.dropouts) == 5


def test_64_layers_gather_64_times(messy_graph: Graph) -> None:
    model = GCNII(5, 4, 3, rngs=nnx.Rngs(0))
    assert len(model.convs) == 64
    definition, state = nnx.split(model)
    jaxpr = jax.make_jaxpr(lambda state, x: nnx.merge(definition, state)(messy_graph, x))(state, jnp.ones((12, 5)))
    assert sum("gather_sum" in equation.primitive.name for equation in jaxpr.eqns) == 64
