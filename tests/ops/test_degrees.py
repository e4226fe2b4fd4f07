"""Degrees and self-loops inside JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dorylax import ops
from dorylax.graph.graph import Graph


def test_degrees_equal_the_matrix_sums(graph, dense):
    a = dense(graph)
    np.testing.assert_array_equal(ops.in_degrees(graph), a.sum(1))
    np.testing.assert_array_equal(jax.jit(ops.out_degrees)(graph), a.sum(0))
    assert ops.in_degrees(graph, jnp.bfloat16).dtype == jnp.bfloat16


def test_missing_self_loops(graph, dense):
    np.testing.assert_array_equal(ops.missing_self_loops(graph), np.diag(dense(graph)) == 0)


def test_missing_self_loops_without_looking_at_edges():
    loops = Graph.from_coo(np.arange(3), np.arange(3), 3)
    assert loops.self_loops == "all"
    np.testing.assert_array_equal(ops.missing_self_loops(loops), [0, 0, 0])
    none = Graph.from_coo(np.array([0]), np.array([1]), 3)
    jaxpr = str(jax.make_jaxpr(ops.missing_self_loops)(none))
    assert "dorylax" not in jaxpr
    np.testing.assert_array_equal(ops.missing_self_loops(none), [1, 1, 1])
