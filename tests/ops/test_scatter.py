"""`scatter_src` and `scatter_dst` against NumPy indexing."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from dorylax import ops


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(), (2, 21)])
def test_reads_the_right_end(graph, ends, dtype, shape):
    x = jnp.asarray(np.random.default_rng(0).standard_normal((graph.num_vertices, *shape)), dtype)
    sources, targets = ends(graph)
    np.testing.assert_array_equal(ops.scatter_src(graph, x), np.asarray(x)[sources])
    np.testing.assert_array_equal(ops.scatter_dst(graph, x), np.asarray(x)[targets])


@pytest.mark.parametrize("scatter", [ops.scatter_src, ops.scatter_dst])
def test_gradient_sums_over_the_edges_of_that_end(graph, ends, scatter):
    ct = np.random.default_rng(0).standard_normal((graph.num_edges, 3)).astype(np.float32)
    x = jnp.zeros((graph.num_vertices, 3))
    (actual,) = jax.vjp(lambda x: scatter(graph, x), x)[1](jnp.asarray(ct))
    expected = np.zeros((graph.num_vertices, 3))
    np.add.at(expected, ends(graph)[0 if scatter is ops.scatter_src else 1], ct.astype(np.float64))
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=2e-3)


def test_derivatives(small, x64):
    x = jnp.asarray(np.random.default_rng(0).standard_normal((small.num_vertices, 3)))
    check_grads(lambda x: ops.scatter_src(small, x) * jnp.sin(ops.scatter_dst(small, x)), (x,), 2)


def test_vmap_equals_a_loop(small):
    x = jnp.asarray(np.random.default_rng(0).standard_normal((small.num_vertices, 4)), jnp.float32)
    mapped = jax.vmap(lambda x: ops.scatter_src(small, x), in_axes=1, out_axes=1)(x)
    np.testing.assert_array_equal(mapped, ops.scatter_src(small, x))


def test_wrong_shape_is_refused(small):
    with pytest.raises(ValueError, match="x must have one row for each of the graph's 9 vertices, got shape"):
        ops.scatter_src(small, jnp.ones((16, 2)))
