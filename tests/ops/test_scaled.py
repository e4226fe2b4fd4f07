"""Sums over neighbours with what surrounds them: the kernel's last step on each row, beside the dense product."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dorylax.ops import native
from dorylax.ops.primitives.linear import gather_sum
from dorylax.ops.primitives.scaled import gather_scaled
from dorylax.ops.primitives.structure import structure_of

needs_library = pytest.mark.skipif(not native.status().available, reason=f"{native.status().reason}")

# dtype of rows and of results, and of the largest error relative to the sum of magnitudes.
STORED = [("float32", "float32", 3e-5), ("float64", "float64", 1e-12), ("bfloat16", "bfloat16", 5e-3)]
STORED += [("bfloat16", "float32", 3e-5)]
FORMS = ["none", "ones", "some"]  # of the row's own values


def case(graph, dtype, result, width, seed=0):
    rng = np.random.default_rng(seed)
    h = jnp.asarray(rng.standard_normal((graph.num_vertices, 1, width)), dtype)
    loops = jnp.asarray(rng.integers(0, 2, graph.num_vertices) * 1.5, result)
    scale = jnp.asarray(rng.uniform(0.1, 2, graph.num_vertices), result)
    return h, loops, scale


def run(graph, operands, form, *, scaled_by=True, direction="in"):
    h, loops, scale = operands
    nothing = jnp.zeros((0,), loops.dtype)
    return gather_scaled(
        h,
        loops if form == "some" else nothing,
        scale if scaled_by else nothing,
        structure_of(graph, edge_ids=False),
        direction=direction,
        own=form != "none",
        dtype=loops.dtype,
    )


def expected(matrix, operands, form, *, scaled_by=True):
    """In float64, and the same of magnitudes."""
    h, loops, scale = (np.asarray(array, np.float64) for array in operands)
    own = {"none": 0 * loops, "ones": 0 * loops + 1, "some": loops}[form]
    factor = scale if scaled_by else 1 + 0 * scale
    rows = h[:, 0]
    wanted, size = (factor[:, None] * (matrix @ x + own[:, None] * x) for x in (rows, np.abs(rows)))
    return wanted[:, None], size[:, None]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("stored", STORED, ids=lambda stored: f"{stored[0]}-{stored[1]}")
@pytest.mark.usefixtures("instruction_set", "x64")
def test_equals_the_dense_product_on_every_instruction_set(graph, dense, stored, form):
    """Hubs of several spans, empty rows, rows of no entries but their own."""
    dtype, result, error = stored
    for width, by in ((7, True), (33, False)):
        h, loops, scale = case(graph, dtype, result, width)
        got = run(graph, (h, loops, scale), form, scaled_by=by)
        wanted, size = expected(dense(graph), (h, loops, scale), form, scaled_by=by)
        assert got.dtype == result
        assert np.all(np.abs(np.asarray(got, np.float64) - wanted) <= error * size + 1e-30)


@pytest.fixture
def without_library():
    jax.clear_caches()
    with native.plain_operators():
        yield
    jax.clear_caches()


@pytest.mark.parametrize("direction", ["in", "out"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("stored", STORED, ids=lambda stored: f"{stored[0]}-{stored[1]}")
@pytest.mark.usefixtures("without_library", "x64")
def test_without_the_library(small, dense, stored, form, direction):
    dtype, result, error = stored
    matrix = dense(small) if direction == "in" else dense(small).T
    h, loops, scale = case(small, dtype, result, 5)
    for by in (True, False):
        got = run(small, (h, loops, scale), form, scaled_by=by, direction=direction)
        wanted, size = expected(matrix, (h, loops, scale), form, scaled_by=by)
        assert got.dtype == result
        assert np.all(np.abs(np.asarray(got, np.float64) - wanted) <= error * size)


@needs_library
@pytest.mark.parametrize("width", [1, 2, 3, 5, 8, 15, 16, 17, 40, 64, 130, 300])
def test_every_width(small, dense, width):
    """The last vector of an odd width overlaps the one before: own values must be added once."""
    h, loops, scale = case(small, "float32", "float32", width)
    wanted, size = expected(dense(small), (h, loops, scale), "some")
    got = run(small, (h, loops, scale), "some")
    assert np.all(np.abs(np.asarray(got) - wanted) <= 2e-6 * size)


@needs_library
@pytest.mark.parametrize(("stored", "result"), [("float32", "float32"), ("bfloat16", "float32")])
def test_the_kernel_serves(small, stored, result):
    lowered = jax.jit(lambda *operands: run(small, operands, "ones")).lower(*case(small, stored, result, 3))
    assert "dorylax_ffi_scaled_sum" in lowered.as_text()


@needs_library
def test_sums_are_those_of_gather_sum_to_the_bit(graph):
    h, loops, scale = case(graph, "float32", "float32", 19)
    plain = gather_sum(h, structure_of(graph, edge_ids=False), direction="in")
    np.testing.assert_array_equal(run(graph, (h, loops, scale), "none", scaled_by=False), plain)


@needs_library
def test_rows_stored_in_bfloat16_are_summed_as_they_are(graph):
    """The same bits as of the rounded rows in float32: what is stored otherwise is not summed otherwise."""
    h, loops, scale = case(graph, "bfloat16", "float32", 19)
    got = run(graph, (h, loops, scale), "some")
    np.testing.assert_array_equal(got, run(graph, (h.astype(jnp.float32), loops, scale), "some"))


def test_no_columns(small):
    h, loops, scale = case(small, "float32", "float32", 0)
    assert run(small, (h, loops, scale), "some").shape == h.shape


def test_it_has_no_derivative(small):
    h, loops, scale = case(small, "float32", "float32", 3)
    with pytest.raises(
        NotImplementedError, match=r"dorylax_gather_scaled has no derivative: .* Differentiate the model"
    ):
        jax.grad(lambda h: run(small, (h, loops, scale), "some").sum())(h)


def test_wrong_factors_are_refused(small):
    h, loops, scale = case(small, "float32", "float32", 3)
    with pytest.raises(ValueError, match=r"loops must be float32 of shape \[0\] or \[9\], got float32 \[8\]"):
        run(small, (h, loops[1:], scale), "some")
    with pytest.raises(ValueError, match=r"scale must be float32 .* got bfloat16"):
        run(small, (h, loops, scale.astype(jnp.bfloat16)), "some")
