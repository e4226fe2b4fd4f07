"""Means, softmaxes and readouts whose sums leave the range or the digits of their dtype, in every operator."""

from __future__ import annotations

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dorylax import ops
from dorylax.graph.graph import Graph
from dorylax.layers.adjacency import normalised_adjacency
from dorylax.ops.native import plain_operators

HUB = 70_001  # neighbours of vertex 0: more than float16 counts
STAR = Graph.from_coo(np.arange(1, HUB + 1), np.zeros(HUB, int), HUB + 1)
PAIR = Graph.from_coo([1, 2], [0, 0], 3)
LOWERINGS = {"native": contextlib.nullcontext, "plain": plain_operators}


def mean(graph, operator, vertices, edges):
    """The mean of equal values of all edges (of all vertices for `global_mean` and `readout`), by one operator."""
    if operator == "gather_edges":
        return ops.gather_edges(graph, edges, reduce="mean")[0]
    if operator == "global_mean":
        return ops.global_mean(graph, vertices)
    if operator == "readout":
        return ops.readout(vertices, jnp.zeros(len(vertices), jnp.int32), 1, "mean")[0]
    weight = {"gather": None, "weighted": jnp.ones_like(edges), "heads": jnp.ones((len(edges), 1), edges.dtype)}[
        operator
    ]
    rows = vertices[:, None] if operator == "heads" else vertices
    return ops.gather(graph, rows, weight, reduce="mean")[0]


MEANS = ("gather", "weighted", "heads", "gather_edges", "global_mean", "readout")


@pytest.mark.parametrize("lowering", LOWERINGS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("operator", MEANS)
def test_a_mean_is_in_range_though_its_sum_is_not(operator, dtype, lowering):
    with LOWERINGS[lowering]():
        found = jax.jit(lambda *given: mean(given[0], operator, *given[1:]))(
            STAR, jnp.full(HUB + 1, 100, dtype), jnp.full(HUB, 100, dtype)
        )
    assert found.dtype == jnp.dtype(dtype)
    assert float(found.reshape(())) == 100


@pytest.mark.parametrize("dtype", ["int32", "uint8"])
@pytest.mark.parametrize("operator", MEANS)
def test_a_mean_of_integers_is_a_fraction(operator, dtype):
    found = mean(PAIR, operator, jnp.asarray([0, 1, 0], dtype), jnp.asarray([1, 0], dtype))
    assert found.dtype == jnp.float32
    expected = 1 / 3 if operator in ("global_mean", "readout") else 1 / 2
    assert float(found.reshape(())) == pytest.approx(expected)


def test_the_normalised_adjacency_is_in_range_though_its_sum_is_not():
    y = normalised_adjacency(STAR, x := jnp.full((HUB + 1, 1), 10, jnp.float16)).times(x)
    assert y.dtype == jnp.float16
    assert float(y[0, 0]) == pytest.approx(10 * HUB / (HUB + 1) ** 0.5, rel=1e-2)


@pytest.mark.parametrize("lowering", LOWERINGS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_weights_of_a_large_softmax_add_up_to_one(dtype, lowering):
    ones = jnp.ones((HUB + 1, 1), dtype)
    with LOWERINGS[lowering]():
        alpha = jax.jit(ops.edge_softmax)(STAR, jnp.zeros(HUB, dtype))
        y = jax.jit(lambda graph, z, s: ops.additive_attention(graph, z, s, s))(STAR, ones[..., None], ones)
    assert alpha.dtype == y.dtype == jnp.dtype(dtype)
    assert float(jnp.asarray(alpha, jnp.float32).sum()) == pytest.approx(1, rel=1e-2)
    assert float(y[0, 0, 0]) == pytest.approx(1, rel=1e-2)


TYPED = "Type-check error"  # in the runs that check types, before the operator does


def test_a_softmax_of_integers_is_refused():
    with pytest.raises(TypeError, match=f"scores must be of a floating dtype, got int32: cast it to float32|{TYPED}"):
        ops.edge_softmax(PAIR, jnp.asarray([1, 2]))
    ones = jnp.ones((3, 1), jnp.int32)
    with pytest.raises(TypeError, match=f"z or its scores must be of a floating dtype, got int32|{TYPED}"):
        ops.additive_attention(PAIR, ones[..., None], ones, ones)


@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("graphs", [1, 3])
def test_a_readout_keeps_the_digits_of_a_long_sum(reduce, graphs):
    """In order, a million times 0.1 adds up to 100,958 in float32."""
    size = 1_000_000
    graph_of = jnp.arange(size, dtype=jnp.int32) % graphs
    y = ops.readout(jnp.full((size, 1), 0.1, jnp.float32), graph_of, graphs, reduce)
    count = np.bincount(graph_of)[:, None]
    np.testing.assert_allclose(y, 0.1 * (count if reduce == "sum" else np.ones_like(count)), rtol=1e-4)
