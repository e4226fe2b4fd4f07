"""Gathers over more rows than stay in a cache: several sweeps over the graph give the bits of one.

`kernel/schedule.cc` sweeps where the gathered rows have more than 6 MB and rows have at least 6 entries per sweep. The
widths here are past that; the same gather of a few columns is not, and a column's result does not depend on the others.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dorylax import ops
from dorylax.graph import Graph
from dorylax.ops import native
from dorylax.ops.primitives.scaled import gather_scaled
from dorylax.ops.primitives.structure import structure_of

pytestmark = pytest.mark.skipif(not native.status().available, reason=f"{native.status().reason}")

VERTICES, EDGES, WIDTH, FEW = 20_000, 2_600_000, 256, 32


@pytest.fixture(scope="module")
def graph():
    """Two hubs, of which one's entries fill spans to the last, and a hundred rows without entries."""
    rng = np.random.default_rng(0)
    targets = np.concatenate([rng.integers(100, VERTICES, EDGES), np.full(5_000, 200), np.full(4_096, VERTICES - 1)])
    keep = np.ones(len(targets), bool)
    keep[:EDGES] = targets[:EDGES] != VERTICES - 1
    targets = targets[keep]
    return Graph.from_coo(rng.integers(0, VERTICES, len(targets)), targets, VERTICES)


def values(dtype, seed=1):
    return jnp.asarray(np.random.default_rng(seed).standard_normal((VERTICES, WIDTH)), dtype)


def by_columns(function, *operands):
    parts = [function(*(x[:, f : f + FEW] for x in operands)) for f in range(0, WIDTH, FEW)]
    return np.concatenate([np.asarray(part) for part in parts], axis=1)


def same_bits(function, *operands):
    whole = np.asarray(function(*operands))
    np.testing.assert_array_equal(whole, by_columns(function, *operands))
    return whole


@pytest.mark.parametrize("reduce", ["sum", "max", "min"])
def test_a_gather(graph, reduce):
    whole = same_bits(lambda x: ops.gather(graph, x, reduce=reduce), values(jnp.float32))
    rows = graph.incoming
    for row in (0, 200, VERTICES // 2, VERTICES - 1):
        of_row = np.asarray(values(jnp.float32))[rows.neighbours[rows.offsets[row] : rows.offsets[row + 1]]]
        expected = getattr(np, reduce)(of_row.astype(np.float64), axis=0) if len(of_row) else 0
        np.testing.assert_allclose(whole[row], expected, rtol=2e-5, atol=2e-4)


def test_a_weighted_gather_and_its_gradient(graph):
    weight = jnp.asarray(np.random.default_rng(2).random(graph.num_edges), jnp.float32)
    same_bits(lambda x: ops.gather(graph, x, weight), values(jnp.float32))
    same_bits(
        lambda x, ct: jax.vjp(lambda x: ops.gather(graph, x, weight), x)[1](ct)[0], *map(values, (jnp.float32,) * 2)
    )


def test_the_gradient_of_an_extremum(graph):
    same_bits(
        lambda x, ct: jax.vjp(lambda x: ops.gather(graph, x, reduce="max"), x)[1](ct)[0],
        values(jnp.float32),
        values(jnp.float32, seed=3),
    )


@pytest.mark.parametrize("stored", [jnp.float32, jnp.bfloat16])
def test_a_scaled_gather(graph, stored):
    rng = np.random.default_rng(4)
    loops, scale = (jnp.asarray(rng.random(VERTICES) + 0.5, jnp.float32) for _ in range(2))
    structure = structure_of(graph, edge_ids=False)
    options = {"direction": "in", "own": True, "dtype": loops.dtype}

    def gather(x):
        return gather_scaled(x.astype(stored)[:, None], loops, scale, structure, **options)[:, 0]

    same_bits(gather, values(jnp.float32))


def test_rows_on_numpy_buffers_in_any_order_of_neighbours(graph):
    rng = np.random.default_rng(5)
    rows = graph.incoming
    shuffled = rng.permuted(rows.neighbours)
    x = np.asarray(values(jnp.float32))

    def gather(x):
        out = np.full_like(x, np.nan)
        native.compute_rows("sum", np.ascontiguousarray(x), rows.offsets, shuffled, out, begin=150, end=VERTICES)
        assert np.isnan(out[:150]).all()
        return out[150:]

    same_bits(gather, x)
