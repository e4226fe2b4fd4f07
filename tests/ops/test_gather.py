"""`gather` against a dense float64 product and against `jax.ops.segment_*`, in every dtype, width and transformation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from dorylax import ops
from dorylax.graph.graph import Graph
from dorylax.graph.validate import GraphError
from dorylax.ops import native

EPSILON = {"float32": 2**-24, "float64": 2**-53, "bfloat16": 2**-8}  # one rounding


def close(actual, expected, dtype, magnitude):
    """Within the rounding of a sum: one step for each term up to the kernel's span, and one of the result.

    `magnitude` is the sum of the terms' magnitudes.
    """
    assert actual.dtype == jnp.dtype(dtype)
    assert actual.shape == expected.shape
    narrow = jnp.dtype(dtype).name
    wide = "float64" if narrow == "float64" else "float32"
    bound = (2048 * EPSILON[wide] + EPSILON[narrow]) * magnitude
    assert (np.abs(np.asarray(actual, np.float64) - expected) <= bound).all()


def values(shape, dtype, seed=0):
    """Random values that the dtype represents exactly, so that references start from the same numbers."""
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)


def segment_reference(graph, x, ends, reduce):
    sources, targets = ends(graph)
    segment = {"max": jax.ops.segment_max, "min": jax.ops.segment_min}[reduce]
    y = np.array(segment(jnp.asarray(x)[sources], targets, graph.num_vertices), np.float64)
    y[np.diff(graph.incoming.offsets) == 0] = 0
    return y


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("shape", [(), (41,), (3, 2, 5)])
def test_sum_and_mean_equal_the_dense_product(graph, dense, x64, dtype, shape):
    x = values((graph.num_vertices, *shape), dtype)
    a = dense(graph)
    expected = np.tensordot(a, np.asarray(x, np.float64), 1)
    magnitude = np.tensordot(a, np.abs(np.asarray(x, np.float64)), 1)
    close(ops.gather(graph, x), expected, dtype, magnitude)
    degree = np.maximum(a.sum(1), 1).reshape(-1, *(1,) * len(shape))
    # The mean is rounded twice: as a sum and after its division.
    close(ops.gather(graph, x, reduce="mean"), expected / degree, dtype, 2 * magnitude / degree)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("reduce", ["max", "min"])
def test_extremum_equals_segment(graph, ends, x64, dtype, reduce):
    x = values((graph.num_vertices, 19), dtype)
    expected = segment_reference(graph, x, ends, reduce)
    np.testing.assert_array_equal(np.asarray(ops.gather(graph, x, reduce=reduce), np.float64), expected)


@pytest.mark.parametrize("reduce", ["max", "min"])
def test_extremum_propagates_nan(small, ends, reduce):
    x = values((small.num_vertices, 5), "float32").at[2].set(jnp.nan)
    expected = segment_reference(small, x, ends, reduce)
    assert np.isnan(expected).any()
    assert not np.isnan(expected).all()
    np.testing.assert_array_equal(np.asarray(ops.gather(small, x, reduce=reduce)), expected.astype(np.float32))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_weighted_equals_the_dense_product(graph, dense, x64, dtype):
    x, weight = values((graph.num_vertices, 21), dtype), values((graph.num_edges,), dtype, 1)
    a = dense(graph, weight)
    magnitude = dense(graph, np.abs(np.asarray(weight, np.float64))) @ np.abs(np.asarray(x, np.float64))
    close(ops.gather(graph, x, weight), a @ np.asarray(x, np.float64), dtype, magnitude)


def test_each_head_has_its_own_weight(graph, dense):
    x, weight = values((graph.num_vertices, 3, 9), "float32"), values((graph.num_edges, 3), "float32", 1)
    actual = ops.gather(graph, x, weight)
    for head in range(3):
        a = dense(graph, weight[:, head])
        magnitude = dense(graph, np.abs(weight[:, head])) @ np.abs(np.asarray(x[:, head], np.float64))
        close(actual[:, head], a @ np.asarray(x[:, head], np.float64), "float32", magnitude)


def test_weighted_extremum(small, ends):
    x, weight = values((small.num_vertices, 4), "float32"), values((small.num_edges,), "float32", 1)
    sources, targets = ends(small)
    expected = np.full((small.num_vertices, 4), -np.inf, np.float32)
    np.maximum.at(expected, targets, np.asarray(weight)[:, None] * np.asarray(x)[sources])
    expected[np.isinf(expected)] = 0
    np.testing.assert_array_equal(np.asarray(ops.gather(small, x, weight, reduce="max")), expected)


@pytest.fixture(scope="module")
def long_rows():
    """Long enough for the kernels' prefetching loop, and with a row of several spans; places are slots, as for kernels."""
    rng = np.random.default_rng(3)
    sources = rng.integers(0, 60, 5000)
    rows = Graph.from_coo(sources, np.where(rng.random(5000) < 0.5, 7, rng.integers(0, 55, 5000)), 60).incoming
    return Graph.from_csr(rows.offsets, rows.neighbours)


# On NumPy buffers: nothing to compile, so that every width can be tried on every instruction set.
@pytest.mark.parametrize("width", [1, 2, 3, 5, 8, 9, 15, 16, 17, 31, 41, 47, 64, 100, 128, 256, 257, 300, 602])
@pytest.mark.parametrize("op", ["sum", "weighted_sum", "max", "min"])
def test_every_width_on_every_instruction_set(instruction_set, dense, long_rows, width, op):
    del instruction_set
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, width)).astype(np.float32)
    weight = rng.standard_normal(long_rows.num_edges).astype(np.float32) if op == "weighted_sum" else None
    out = np.full_like(x, np.nan)
    rows = long_rows.incoming
    native.compute_rows(op, x, rows.offsets, np.asarray(rows.neighbours), out, begin=0, end=60, weight=weight)
    if op in ("max", "min"):
        index = dense(long_rows).astype(bool)
        expected = [getattr(x[row], op)(0) if row.any() else np.zeros(width, np.float32) for row in index]
        np.testing.assert_array_equal(out, np.stack(expected))
    else:
        magnitude = dense(long_rows, None if weight is None else np.abs(weight)) @ np.abs(x.astype(np.float64))
        close(jnp.asarray(out), dense(long_rows, weight) @ x.astype(np.float64), "float32", magnitude)


def test_forward_and_backward_on_every_instruction_set(instruction_set, dense, long_rows, ends):
    del instruction_set
    x, weight = values((60, 2, 21), "float32"), values((long_rows.num_edges, 2), "float32", 1)
    ct = values((60, 2, 21), "float32", 2)
    sources, targets = ends(long_rows)

    @jax.jit
    def both(graph, x, weight, ct):
        _, weighted = jax.vjp(lambda x, w: ops.gather(graph, x, w), x, weight)
        _, largest = jax.vjp(lambda x: ops.gather(graph, x, reduce="max"), x)
        return weighted(ct), largest(ct)[0]

    (dx, dweight), dlargest = both(long_rows, x, weight, ct)
    exact, exact_ct = np.asarray(x, np.float64), np.asarray(ct, np.float64)
    for head in range(2):
        a = dense(long_rows, weight[:, head])
        magnitude = dense(long_rows, np.abs(weight[:, head])).T @ np.abs(exact_ct[:, head])
        close(dx[:, head], a.T @ exact_ct[:, head], "float32", magnitude)
    products = exact_ct[targets] * exact[sources]
    close(dweight, products.sum(-1), "float32", np.abs(products).sum(-1))
    # Random values tie only with themselves: parallel edges, which share the gradient and add it up again.
    expected = np.zeros((60, 2, 21))
    for v, row in enumerate(dense(long_rows).astype(bool)):
        if row.any():
            winner = np.flatnonzero(row)[exact[row].argmax(0)]
            np.add.at(expected, (winner, *np.indices((2, 21))), exact_ct[v])
    np.testing.assert_allclose(dlargest, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
def test_no_columns(small, reduce):
    assert ops.gather(small, jnp.ones((9, 0)), reduce=reduce).shape == (9, 0)
    assert ops.gather_edges(small, jnp.ones((16, 2, 0)), reduce=reduce).shape == (9, 2, 0)


@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_other_dtypes_on_every_instruction_set(instruction_set, dense, small, x64, dtype):
    del instruction_set
    for width in (3, 16, 41, 64):
        x = values((small.num_vertices, width), dtype)
        a, exact = dense(small), np.asarray(x, np.float64)
        close(ops.gather(small, x), a @ exact, dtype, a @ np.abs(exact))


def test_bfloat16_is_summed_in_float32(dense):
    star = Graph.from_coo(np.arange(1, 1001), np.zeros(1000, np.int64), 1001)
    x = jnp.ones((1001, 4), jnp.bfloat16)  # bfloat16 cannot count past 256
    assert float(ops.gather(star, x)[0, 0]) == 1000


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
@pytest.mark.parametrize("weighted", [False, True])
def test_derivatives(small, x64, reduce, weighted):
    x, weight = values((small.num_vertices, 2, 3), "float64"), values((small.num_edges, 2), "float64", 1)
    if weighted:
        check_grads(lambda x, w: ops.gather(small, x, w, reduce=reduce), (x, weight), 2)
    else:
        check_grads(lambda x: ops.gather(small, x, reduce=reduce), (x,), 2)


@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_gradient_is_the_transposed_product(graph, dense, reduce):
    x, ct = values((graph.num_vertices, 6), "float32"), values((graph.num_vertices, 6), "float32", 1)
    a = dense(graph)
    if reduce == "mean":
        a = a / np.maximum(a.sum(1, keepdims=True), 1)
    (actual,) = jax.vjp(lambda x: ops.gather(graph, x, reduce=reduce), x)[1](ct)
    # The mean's division rounds every term once more.
    close(actual, a.T @ np.asarray(ct, np.float64), "float32", 2 * a.T @ np.abs(np.asarray(ct, np.float64)))


def test_ties_share_the_gradient_equally():
    graph = Graph.from_coo(np.array([1, 2, 3]), np.zeros(3, np.int64), 4)
    x = jnp.asarray([[0.0], [5.0], [5.0], [1.0]])
    gradient = jax.grad(lambda x: ops.gather(graph, x, reduce="max")[0, 0])(x)
    np.testing.assert_array_equal(gradient[:, 0], [0, 0.5, 0.5, 0])


@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
def test_vmap_equals_a_loop(small, reduce):
    x = values((small.num_vertices, 4, 5), "float32")
    mapped = jax.vmap(lambda x: ops.gather(small, x, reduce=reduce), in_axes=1, out_axes=1)(x)
    looped = jnp.stack([ops.gather(small, x[:, i], reduce=reduce) for i in range(4)], 1)
    np.testing.assert_allclose(mapped, looped, rtol=1e-6)


@pytest.mark.parametrize(("x_axis", "weight_axis"), [(0, None), (None, 0), (0, 0), (1, 1)])
def test_vmap_over_features_and_weights(small, x64, x_axis, weight_axis):
    x = values((small.num_vertices, 2, 5), "float64")
    weight = values((small.num_edges, 2), "float64", 1)
    xs = x if x_axis is None else jnp.stack([x, 2 * x, -x], x_axis)
    weights = weight if weight_axis is None else jnp.stack([weight, weight + 1, 3 * weight], weight_axis)

    def loss(x, weight):
        return jnp.sin(ops.gather(small, x, weight)).sum()

    mapped = jax.vmap(jax.grad(loss, (0, 1)), (x_axis, weight_axis))(xs, weights)
    for i in range(3):
        one = jax.grad(loss, (0, 1))(
            xs if x_axis is None else jnp.take(xs, i, x_axis),
            weights if weight_axis is None else jnp.take(weights, i, weight_axis),
        )
        for a, b in zip(mapped, one, strict=True):
            np.testing.assert_allclose(a[i], b, rtol=1e-12)


def test_vmap_over_the_graph_is_refused(small):
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), small)
    x = jnp.ones((small.num_vertices, 2))
    with pytest.raises(NotImplementedError, match="vmap over the graph itself"):
        jax.vmap(lambda g: ops.gather(g, x))(stacked)


def test_inside_jit_grad_scan_and_remat(small, dense):
    a = dense(small).astype(np.float32)
    x = 0.1 * values((small.num_vertices, 3), "float32")

    def run(gather):
        return jax.jit(jax.grad(lambda x: _scanned(gather, x)))(x)

    def _scanned(gather, x):
        step = jax.checkpoint(lambda h, _: (jnp.tanh(gather(h)), None))
        return jax.lax.scan(step, x, None, length=3)[0].sum()

    np.testing.assert_allclose(run(lambda h: ops.gather(small, h)), run(lambda h: jnp.asarray(a) @ h), atol=1e-5)


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_elsewhere_it_lowers_to_segments(small, platform):
    x, weight = jnp.ones((small.num_vertices, 2, 3)), jnp.ones((small.num_edges, 2))

    def loss(graph, x, weight):
        return ops.gather(graph, x, weight).sum() + ops.gather(graph, x, reduce="max").sum()

    traced = jax.jit(jax.grad(loss, (1, 2))).trace(small, x, weight)
    assert "dorylax_ffi" not in traced.lower(lowering_platforms=(platform,)).as_text()
    if native.status().available:
        assert "dorylax_ffi" in traced.lower(lowering_platforms=("cpu",)).as_text()


def test_past_the_limit_of_edge_ids_only_unweighted_gathers_run(monkeypatch, dense):
    monkeypatch.setattr("dorylax.graph.rows.MAX_EDGE_IDS", 10)
    graph = Graph.from_coo(np.arange(12) % 5, np.arange(12) % 3, 5)
    x = values((5, 3), "float32")
    for reduce in ("sum", "mean", "max"):
        jax.jit(jax.grad(lambda x, g, reduce=reduce: ops.gather(g, x, reduce=reduce).sum()))(x, graph)
    np.testing.assert_allclose(ops.gather(graph, x), dense(graph) @ x, rtol=1e-5)
    np.testing.assert_array_equal(ops.missing_self_loops(graph), np.diag(dense(graph)) == 0)
    for refused in (
        lambda: ops.gather(graph, x, jnp.ones(12)),
        lambda: ops.scatter_src(graph, x),
        lambda: ops.gather_edges(graph, jnp.ones((12, 1))),
        lambda: ops.edge_softmax(graph, jnp.ones(12)),
        lambda: ops.edge_ids(graph),
    ):
        with pytest.raises(GraphError, match="the graph has 12 edges: operators with weights"):
            refused()


def test_mixed_dtypes_promote(small):
    x = values((small.num_vertices, 3), "bfloat16")
    assert ops.gather(small, x, values((small.num_edges,), "float32")).dtype == jnp.float32


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda g: ops.gather(g, jnp.ones((3, 2))),
            r"x must have one row for each of the graph's 9 vertices, got shape \(3, 2\)",
        ),
        (
            lambda g: ops.gather(g, jnp.ones((9, 2)), jnp.ones(4)),
            r"edge_weight must have one row for each of the graph's 16 edges",
        ),
        (
            lambda g: ops.gather(g, jnp.ones((9, 3, 2)), jnp.ones((16, 2))),
            r"edge_weight must have shape \[E\], or \[E, H\]",
        ),
    ],
)
def test_wrong_shapes_are_refused(small, call, message):
    with pytest.raises(ValueError, match=message):
        call(small)


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
