"""`additive_attention` against the same written out in other operators, forward and backward."""

from __future__ import annotations

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from dorylax import ops
from dorylax.graph.graph import Graph
from dorylax.ops import native
from dorylax.ops.primitives.attention import written_out
from dorylax.ops.primitives.structure import structure_of

needs_library = pytest.mark.skipif(not native.status().available, reason=f"{native.status().reason}")
SHAPES = [(1, 1), (1, 7), (8, 8), (3, 5), (4, 41), (2, 300), (70, 3)]
CASES = [("float32", *shape) for shape in SHAPES] + [
    (dtype, *shape) for dtype in ("float64", "bfloat16") for shape in ((8, 8), (3, 5), (2, 300))
]
# Relative, and absolute in units of the largest element: sums over a hub cancel.
TOLERANCES = {"float64": (1e-10, 1e-10), "float32": (2e-4, 1e-3), "bfloat16": (5e-2, 5e-2)}


def operands(graph, heads, width, seed=0):
    """z, s, t, loops of half of the vertices, and a cotangent, in float64 but with values that float32 holds."""
    rng = np.random.default_rng(seed)
    rows, scores = (graph.num_vertices, heads, width), (graph.num_vertices, heads)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in (rows, scores, scores, rows)]
    return *arrays[:3], (np.arange(graph.num_vertices) % 2).astype(np.float32), arrays[3]


def reference(graph, z, s, t, loops):
    """Row by row, in float64."""
    offsets, sources = np.asarray(graph.incoming.offsets), np.asarray(graph.incoming.neighbours)
    y = np.zeros(z.shape)
    for v in range(graph.num_vertices):
        near = np.append(sources[offsets[v] : offsets[v + 1]], np.full(int(loops[v] > 0), v))
        x = s[near].astype(np.float64) + t[v]
        score = np.where(x >= 0, x, 0.2 * x)
        if near.size and (most := score.max(0)).max() > -np.inf:
            w = np.exp(score - np.where(np.isfinite(most), most, 0))
            total = w.sum(0)
            y[v] = np.einsum("eh,ehf->hf", w / np.where(total == 0, 1, total), z[near].astype(np.float64))
    return y


def value_and_pullback(fun, arrays, ct, dtype):
    y, pullback = jax.vjp(fun, *(jnp.asarray(array, dtype) for array in arrays))
    return [y, *pullback(jnp.asarray(ct, dtype))]


def fused(graph, loops, slope=0.2):
    return lambda z, s, t: ops.additive_attention(graph, z, s, t, loops=loops, negative_slope=slope)


def in_pieces(graph, loops, slope=0.2):
    return lambda z, s, t: written_out(z, s, t, jnp.asarray(loops, z.dtype), structure_of(graph), negative_slope=slope)


def assert_close(actual, expected, dtype):
    relative, absolute = TOLERANCES[dtype]
    for one, other in zip(actual, expected, strict=True):
        assert one.dtype == dtype
        scale = float(jnp.abs(other).max()) or 1.0
        np.testing.assert_allclose(
            np.asarray(one, np.float64), np.asarray(other, np.float64), rtol=relative, atol=absolute * scale
        )


def test_equals_a_weighted_sum_per_vertex(graph):
    z, s, t, loops, _ = operands(graph, 2, 3)
    y = ops.additive_attention(graph, z, s, t, loops=loops)
    np.testing.assert_allclose(y, reference(graph, z, s, t, loops), rtol=1e-4, atol=1e-4)
    bare = ops.additive_attention(graph, z, s, t)
    np.testing.assert_allclose(bare, reference(graph, z, s, t, 0 * loops), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("dtype", "heads", "width"), CASES)
def test_kernels_equal_the_written_out_operators(instruction_set, x64, dtype, heads, width):
    del instruction_set
    for graph in (GRAPH, HUB):
        *arrays, loops, ct = operands(graph, heads, width)
        # bfloat16 operands are exact in float64, so that what is compared is the arithmetic.
        arrays = [np.asarray(jnp.asarray(array, dtype), np.float64) for array in arrays]
        ct = np.asarray(jnp.asarray(ct, dtype), np.float64)
        expected = value_and_pullback(in_pieces(graph, loops), arrays, ct, "float64")
        assert_close(value_and_pullback(fused(graph, loops), arrays, ct, dtype), expected, dtype)


def both_ways(seed, num_vertices, num_edges, hub):
    """A random graph with loops, parallel edges and empty rows, whose vertex 3 has a hub's in-edges, and 5 its out-edges."""
    rng = np.random.default_rng(seed)
    sources, targets = rng.integers(0, num_vertices - 4, (2, num_edges))
    sources[:10] = targets[:10]
    near = rng.integers(0, num_vertices - 4, (2, hub))
    return Graph.from_coo(
        np.concatenate([sources, near[0], np.full(hub, 5)]),
        np.concatenate([targets, np.full(hub, 3), near[1]]),
        num_vertices,
    )


GRAPH = both_ways(0, 37, 300, 0)
HUB = both_ways(1, 60, 100, 5001)  # more entries in a row than the kernels' schedule and its chunks take at once


@pytest.mark.parametrize("slope", [0.2, 0.0, -0.5])
def test_a_score_of_minus_infinity_leaves_edges_out(slope):
    # 0 attends to 1 and 2; 3 to 2 alone; 4 to nobody.
    graph = Graph.from_coo(np.array([1, 2, 2]), np.array([0, 0, 3]), 5)
    z, s, t, _, ct = operands(graph, 2, 3)
    s[2] = -np.inf
    loops = np.zeros(5, np.float32)
    y, *gradients = value_and_pullback(fused(graph, loops, slope), (z, s, t), ct, "float32")
    np.testing.assert_allclose(y[0], z[1], rtol=1e-6)
    np.testing.assert_array_equal(y[1:], 0)
    for gradient in gradients:
        assert np.isfinite(gradient).all()
    np.testing.assert_allclose(gradients[0][1], ct[0], rtol=1e-6)
    np.testing.assert_array_equal(gradients[0][2:], 0)
    np.testing.assert_allclose(gradients[1], 0, atol=1e-6)  # one neighbour each: its weight is 1 whatever its score
    loop = fused(graph, loops + 1, slope)(z, s, t)
    np.testing.assert_allclose(loop[4], z[4], rtol=1e-6)
    np.testing.assert_array_equal(loop[2], 0)


@pytest.mark.parametrize("slope", [0.2, -0.5])
def test_large_scores_neither_overflow_nor_lose_weights(slope):
    graph = Graph.from_coo(np.array([1, 2, 3]), np.zeros(3, np.int64), 4)
    z, s, t, loops, ct = operands(graph, 1, 2)
    s[:, 0], t[:, 0] = [0, 3e4, 3e4, -3e4], 1e4
    y, *gradients = value_and_pullback(fused(graph, 0 * loops, slope), (z, s, t), ct, "float32")
    expected = (z[1] + z[2]) / 2
    np.testing.assert_allclose(y[0], expected, rtol=1e-6)
    np.testing.assert_allclose(gradients[0][1:3], [ct[0] / 2, ct[0] / 2], rtol=1e-6)


def test_nan_reaches_those_who_attend_to_it_and_nobody_else(small):
    z, s, t, loops, _ = operands(small, 2, 3)
    s[4, 1] = np.nan
    y = np.asarray(ops.additive_attention(small, z, s, t, loops=loops))
    expected = reference(small, z, s, t, loops)
    sources, offsets = np.asarray(small.incoming.neighbours), np.asarray(small.incoming.offsets)
    reached = np.array([4 in sources[offsets[v] : offsets[v + 1]] or (v == 4 and loops[4] > 0) for v in range(9)])
    assert np.isnan(y[reached, 1]).all()
    assert np.isfinite(y[:, 0]).all()
    np.testing.assert_allclose(y[~reached], expected[~reached], rtol=1e-5, atol=1e-6)


@needs_library
def test_weights_are_exact_to_rounding(instruction_set, x64):
    # One in-neighbour of score 0 and one of -x: y is exp(-x) / (1 + exp(-x)), which shows the kernel's exponential.
    del instruction_set
    for dtype, lowest, tolerance in ((np.float32, -86, 5e-7), (np.float64, -700, 1e-15)):
        x = np.linspace(lowest, 0, 9001).astype(dtype)
        count = len(x)
        sources = np.concatenate([np.full(count, count), np.arange(count)])
        graph = Graph.from_coo(sources, np.concatenate([np.arange(count)] * 2), count + 1)
        z, s = np.ones((count + 1, 1, 1), dtype), np.append(x, dtype(0))[:, None]
        z[-1] = 0
        y = ops.additive_attention(graph, z, s, 0 * s, negative_slope=1.0)[:-1, 0, 0]
        exact = np.exp(x.astype(np.longdouble))
        np.testing.assert_allclose(np.asarray(y, np.longdouble), exact / (1 + exact), rtol=tolerance)


def test_derivatives_of_second_order(small, x64):
    z, s, t, loops, _ = (jnp.asarray(array, jnp.float64) for array in operands(small, 2, 2))
    check_grads(jax.jit(lambda s: ops.additive_attention(small, z, s, t, loops=loops)), (s,), 2)

    def of(attend):
        def energy(z, s, t):
            return (attend(small, loops)(z, s, t) ** 3).sum()

        def steepness(z, s, t):
            return sum((gradient**2).sum() for gradient in jax.grad(energy, (0, 1, 2))(z, s, t))

        # Forward over reverse, and reverse over reverse; as one program: an eager call compiles every operation.
        both = jax.jit(lambda *at: (jax.hessian(energy, (0, 1, 2))(*at), jax.grad(steepness, (0, 1, 2))(*at)))
        return jax.tree.leaves(both(z, s, t))

    for actual, expected in zip(of(fused), of(in_pieces), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-8, atol=1e-8)


def test_forward_mode_equals_the_written_out_operators(small, x64):
    *arrays, loops, _ = (jnp.asarray(array, jnp.float64) for array in operands(small, 2, 3))
    *tangents, _, _ = (jnp.asarray(array, jnp.float64) for array in operands(small, 2, 3, 1))
    actual = jax.jvp(fused(small, loops), arrays, tangents)
    expected = jax.jvp(in_pieces(small, loops), arrays, tangents)
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


def test_vmap_equals_a_loop(small):
    z, s, t, loops, ct = operands(small, 2, 3)
    many = np.stack([s, 2 * s, -s])

    def pulled(z, s):
        return value_and_pullback(fused(small, loops), (z, s, t), ct, jnp.float32)

    mapped = jax.vmap(pulled, in_axes=(None, 0))(z, many)
    for i in range(3):
        for all_, one in zip(mapped, pulled(z, many[i]), strict=True):
            np.testing.assert_allclose(all_[i], one, rtol=1e-5, atol=1e-6)
    with pytest.raises(NotImplementedError, match="vmap over which loops"):
        jax.vmap(lambda loops: ops.additive_attention(small, z, s, t, loops=loops))(jnp.stack([loops, loops]))


def test_no_array_over_the_edges_is_made():
    rng = np.random.default_rng(0)
    graph = Graph.from_coo(*rng.integers(0, 50, (2, 40_000)), 50)
    z, s, t, loops, _ = operands(graph, 4, 3)

    def loss(graph, z, s, t):
        return (ops.additive_attention(graph, z, s, t, loops=loops) ** 2).sum()

    step = jax.jit(jax.value_and_grad(loss, (1, 2, 3))).lower(graph, z, s, t).compile()
    if native.status().available:
        assert step.memory_analysis().temp_size_in_bytes < graph.num_edges * 4


def test_without_the_library_results_are_the_same():
    code = (
        "import numpy as np, jax; from test_attention import *; "
        "*arrays, loops, ct = operands(GRAPH, 3, 5); "
        "assert not native.status().available; "
        "assert_close(value_and_pullback(fused(GRAPH, loops), arrays, ct, 'float32'), "
        "value_and_pullback(in_pieces(GRAPH, loops), arrays, ct, 'float32'), 'float32'); "
        "y = ops.additive_attention(GRAPH, *arrays, loops=loops); "
        "np.testing.assert_allclose(y, reference(GRAPH, *arrays, loops), rtol=1e-4, atol=1e-5); print('same')"
    )
    path = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "DORYLAX_NATIVE": "0", "PYTHONPATH": path},
        check=False,
    )
    assert done.stdout == "same\n", done.stderr


def test_wrong_shapes_are_refused(small):
    z, s, t, _, _ = operands(small, 2, 3)
    with pytest.raises(ValueError, match="z must have one row for each of the graph's 9 vertices"):
        ops.additive_attention(small, z[:3], s[:3], t[:3])
