from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dorylax.graph.graph import Graph
from dorylax.layers import APPNPConv


def test_by_hand(make_graph: Callable[..., Graph], run: Any) -> None:
    """0 → 1, in-degrees with loops 1 and 2, two steps with α = 1/4."""
    y = run(
        APPNPConv(num_propagations=2, alpha=0.25, rngs=nnx.Rngs(0)),
        make_graph([0], [1], 2),
        jnp.array([[4.0], [8.0]]),
    )
    root = 2**-0.5
    once = 0.75 * (4 * root + 8 / 2) + 0.25 * 8
    np.testing.assert_allclose(y[:, 0], [4, 0.75 * (4 * root + once / 2) + 0.25 * 8], rtol=1e-6)


@pytest.mark.parametrize(("edge_dropout", "training", "scans"), [(0.0, True, 1), (0.5, False, 1), (0.5, True, 0)])
def test_the_steps_are_a_scan_unless_edges_are_dropped(
    edge_dropout: float, training: bool, scans: int, messy_graph: Graph
) -> None:
    conv = APPNPConv(edge_dropout=edge_dropout, rngs=nnx.Rngs(0))
    conv.train() if training else conv.eval()
    definition, state = nnx.split(conv)
    jaxpr = jax.make_jaxpr(lambda state, x: nnx.merge(definition, state)(messy_graph, x))(state, jnp.ones((12, 2)))
    equations = [e for e in jaxpr.eqns if e.primitive.name == "scan"]
    assert len(equations) == scans
    gathers = [str(e.params["jaxpr"]).count("gather_sum") for e in equations]
    assert gathers == [1] * scans  # in the body, once


def test_dropout_with_nothing_to_drop_is_the_scan(messy_graph: Graph, run: Any) -> None:
    """A rate too small to ever drop: the steps that are written out give the same rows."""
    x = jax.random.normal(jax.random.key(0), (12, 3))
    scanned, written = (run(APPNPConv(edge_dropout=p, rngs=nnx.Rngs(0)), messy_graph, x) for p in (0.0, 1e-9))
    np.testing.assert_allclose(written, scanned, rtol=1e-5, atol=1e-6)


def test_dropout_is_anew_at_every_step_and_takes_edges_and_loops(make_graph: Callable[..., Graph], run: Any) -> None:
    """Vertices with only themselves, α = 0: what survives two steps of rate 1/2 is worth 4."""
    conv = APPNPConv(num_propagations=2, alpha=0.0, edge_dropout=0.5, rngs=nnx.Rngs(0))
    for graph in (make_graph([], [], 400), make_graph(np.arange(400), np.arange(400), 400)):
        y = run(conv, graph, jnp.ones((400, 3)))
        np.testing.assert_allclose(np.unique(y), [0, 4])
        assert np.all(y == y[:, :1])  # the edge is dropped, not single features
        assert 0.18 < (y[:, 0] > 0).mean() < 0.32  # 1/4, give or take 3.2 standard deviations


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_parity_with_pyg(weighted: bool, messy_graph: Graph, peers: Any, run: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 6)).astype(np.float32)
    weight = rng.uniform(0.1, 2, messy_graph.num_edges).astype(np.float32) if weighted else None
    their_weight = None if weight is None else peers.torch.tensor(weight)
    expected = peers.nn.APPNP(K=5, alpha=0.2)(peers.torch.tensor(x), peers.edge_index, their_weight).numpy()
    ours = APPNPConv(num_propagations=5, alpha=0.2, rngs=nnx.Rngs(0))
    our_weight = None if weight is None else jnp.asarray(weight)
    np.testing.assert_allclose(run(ours, messy_graph, jnp.asarray(x), our_weight), expected, atol=1e-5)
