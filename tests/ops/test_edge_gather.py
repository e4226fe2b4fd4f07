"""`gather_edges` against NumPy's unbuffered reductions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from dorylax import ops

START = {"sum": 0.0, "max": -np.inf, "min": np.inf}
UFUNC = {"sum": np.add, "max": np.maximum, "min": np.minimum}


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
@pytest.mark.parametrize("shape", [(), (2, 5)])
def test_equals_numpy(graph, ends, reduce, shape):
    e = jnp.asarray(np.random.default_rng(0).standard_normal((graph.num_edges, *shape)), jnp.float32)
    kind = "sum" if reduce == "mean" else reduce
    expected = np.full((graph.num_vertices, *shape), START[kind])
    UFUNC[kind].at(expected, ends(graph)[1], np.asarray(e, np.float64))
    degree = np.diff(graph.incoming.offsets).reshape(-1, *(1,) * len(shape))
    expected = np.where(degree == 0, 0, expected)
    if reduce == "mean":
        expected = expected / np.maximum(degree, 1)
    np.testing.assert_allclose(ops.gather_edges(graph, e, reduce=reduce), expected, rtol=1e-5, atol=2e-3)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
def test_derivatives(small, x64, reduce):
    e = jnp.asarray(np.random.default_rng(0).standard_normal((small.num_edges, 3)))
    check_grads(lambda e: ops.gather_edges(small, e, reduce=reduce), (e,), 2)


def test_ties_share_the_gradient_equally(small, ends):
    gradient = jax.grad(lambda e: ops.gather_edges(small, e, reduce="max").sum())(jnp.zeros(small.num_edges))
    degree = np.diff(small.incoming.offsets)
    np.testing.assert_allclose(gradient, 1 / degree[ends(small)[1]], rtol=1e-6)


@pytest.mark.parametrize("reduce", ["sum", "max"])
def test_vmap_equals_a_loop(small, reduce):
    e = jnp.asarray(np.random.default_rng(0).standard_normal((4, small.num_edges, 2)), jnp.float32)
    mapped = jax.vmap(lambda e: ops.gather_edges(small, e, reduce=reduce))(e)
    for i in range(4):
        np.testing.assert_allclose(mapped[i], ops.gather_edges(small, e[i], reduce=reduce), rtol=1e-6)


def test_wrong_arguments_are_refused(small):
    with pytest.raises(ValueError, match="e must have one row for each of the graph's 16 edges, got shape"):
        ops.gather_edges(small, jnp.ones((9, 2)))
