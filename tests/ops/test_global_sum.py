"""Sums and means over all vertices."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dorylax import Graph, ops


@pytest.fixture
def graph() -> Graph:
    return Graph.from_coo([0, 1, 2], [1, 2, 0], 4)


def test_values(graph: Graph) -> None:
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.testing.assert_array_equal(ops.global_sum(graph, x), [18, 22, 26])
    np.testing.assert_array_equal(ops.global_mean(graph, x), [4.5, 5.5, 6.5])
    np.testing.assert_array_equal(ops.global_sum(graph, x[:, 0]), 18)


def test_heads_stay(graph: Graph) -> None:
    assert ops.global_mean(graph, jnp.ones((4, 2, 5))).shape == (2, 5)


def test_gradient(graph: Graph) -> None:
    x = jnp.asarray(np.random.default_rng(0).normal(size=(4, 3)), jnp.float32)
    found = jax.grad(lambda x: (ops.global_mean(graph, x) ** 2).sum())(x)
    np.testing.assert_allclose(found, np.broadcast_to(2 * x.mean(axis=0) / 4, (4, 3)), rtol=1e-6)


def test_many_small_numbers_in_bfloat16() -> None:
    """A sum kept in bfloat16 would stay at 256."""
    graph = Graph.from_coo([], [], 10_000)
    assert ops.global_sum(graph, jnp.ones((10_000,), jnp.bfloat16)) == jnp.bfloat16(10_000)


def test_a_graph_without_vertices() -> None:
    assert ops.global_mean(Graph.from_coo([], [], 0), jnp.zeros((0, 2))).tolist() == [0, 0]


def test_rows_of_something_else(graph: Graph) -> None:
    with pytest.raises(ValueError, match="x must have one row for each of the graph's 4 vertices"):
        ops.global_sum(graph, jnp.ones((5, 2)))
