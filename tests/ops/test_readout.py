"""Rows of graphs from rows of vertices, beside a loop over the graphs, and values of all vertices."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from dorylax import Graph, ops
from dorylax.ops import readout

GRAPH_OF = np.array([2, 0, 2, 0, 3, 2], np.int32)  # in any order; graphs 1 and 4 have no vertex
REDUCE = {"sum": np.sum, "mean": np.mean, "max": np.max}


@pytest.mark.parametrize("reduce", REDUCE)
@pytest.mark.parametrize("rest", [(), (3,), (2, 3)])
def test_each_graph_is_reduced_by_itself(reduce, rest) -> None:
    x = np.random.default_rng(0).normal(size=(6, *rest)).astype(np.float32) - 5
    found = readout(jnp.asarray(x), jnp.asarray(GRAPH_OF), 5, reduce)
    for number, row in enumerate(np.asarray(found)):
        own = x[number == GRAPH_OF]
        expected = REDUCE[reduce](own, axis=0) if len(own) else np.zeros(rest)
        np.testing.assert_allclose(row, expected, rtol=1e-6)
    assert found.dtype == x.dtype


def test_narrow_sums_are_added_up_in_float32() -> None:
    x = jnp.full((4096, 1), 1.0, jnp.bfloat16)  # in bfloat16 a sum of ones stops at 256
    found = readout(x, jnp.zeros(4096, jnp.int32), 1)
    assert found.dtype == jnp.bfloat16
    assert float(found[0, 0]) == 4096


def test_another_way_is_refused() -> None:
    with pytest.raises((ValueError, TypeCheckError), match="median"):
        readout(jnp.ones((6, 1)), jnp.asarray(GRAPH_OF), 5, "median")  # type: ignore[arg-type]


CYCLE = Graph.from_coo([0, 1, 2], [1, 2, 0], 4)


def test_sums_and_means_over_all_vertices() -> None:
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.testing.assert_array_equal(ops.global_sum(CYCLE, x), [18, 22, 26])
    np.testing.assert_array_equal(ops.global_mean(CYCLE, x), [4.5, 5.5, 6.5])
    np.testing.assert_array_equal(ops.global_sum(CYCLE, x[:, 0]), 18)
    assert ops.global_mean(CYCLE, jnp.ones((4, 2, 5))).shape == (2, 5)
    assert ops.global_mean(Graph.from_coo([], [], 0), jnp.zeros((0, 2))).tolist() == [0, 0]


def test_many_small_numbers_in_bfloat16() -> None:
    """A sum kept in bfloat16 would stay at 256."""
    graph = Graph.from_coo([], [], 10_000)
    assert ops.global_sum(graph, jnp.ones((10_000,), jnp.bfloat16)) == jnp.bfloat16(10_000)
