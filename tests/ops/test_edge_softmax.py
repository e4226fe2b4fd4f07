"""`edge_softmax` against a row-by-row softmax."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dorylax import ops
from dorylax.graph.graph import Graph


def reference(graph, scores, loop_scores=None):
    """Row by row, in float64."""
    alpha, offsets = np.zeros(scores.shape), np.asarray(graph.incoming.offsets)
    order = np.arange(graph.num_edges) if graph.edge_order is None else graph.edge_order
    loop_alpha = np.zeros((graph.num_vertices, *scores.shape[1:]))
    for v in range(graph.num_vertices):
        mine = order[offsets[v] : offsets[v + 1]]
        row = np.asarray(scores, np.float64)[mine]
        loop = np.full((1, *scores.shape[1:]), -np.inf) if loop_scores is None else np.asarray(loop_scores)[v : v + 1]
        full = np.concatenate([row, loop.astype(np.float64)])
        with np.errstate(invalid="ignore"):
            p = np.exp(full - full.max(0))
        p = np.nan_to_num(p / p.sum(0))
        alpha[mine], loop_alpha[v] = p[:-1], p[-1]
    return alpha if loop_scores is None else (alpha, loop_alpha)


def random(shape, seed=0, scale=3.0):
    return jnp.asarray(scale * np.random.default_rng(seed).standard_normal(shape), jnp.float32)


@pytest.mark.parametrize("heads", [(), (1,), (3,)])
def test_equals_a_softmax_per_vertex(graph, heads):
    scores = random((graph.num_edges, *heads))
    np.testing.assert_allclose(ops.edge_softmax(graph, scores), reference(graph, scores), rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize("heads", [(), (3,)])
def test_implicit_loops_take_part(graph, heads):
    scores, loops = random((graph.num_edges, *heads)), random((graph.num_vertices, *heads), 1)
    loops = loops.at[::3].set(-jnp.inf)
    for actual, expected in zip(ops.edge_softmax(graph, scores, loops), reference(graph, scores, loops), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=1e-7)


def test_scores_of_any_size_neither_overflow_nor_underflow():
    graph = Graph.from_coo(np.array([1, 2]), np.array([0, 0]), 4)
    scores = jnp.asarray([1e30, -1e30])
    loops = jnp.asarray([0.0, -300.0, 1e30, -jnp.inf])
    alpha, loop_alpha = ops.edge_softmax(graph, scores, loops)
    np.testing.assert_array_equal(alpha, [1, 0])
    np.testing.assert_array_equal(loop_alpha, [0, 1, 1, 0])


def test_left_out_edges_weigh_nothing_and_have_no_gradient():
    graph = Graph.from_coo(np.array([1, 2, 3]), np.zeros(3, np.int64), 4)
    scores = jnp.asarray([0.5, -jnp.inf, 1.5])
    gradient = jax.grad(lambda s: (ops.edge_softmax(graph, s) * jnp.arange(3.0)).sum())(scores)
    assert np.isfinite(gradient).all()
    assert gradient[1] == 0
    np.testing.assert_allclose(ops.edge_softmax(graph, scores), reference(graph, scores), rtol=1e-6)
