"""Graph operators on row ranges, natively and in NumPy, against the JAX primitives over all rows."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dorylax.graph.graph import Graph
from dorylax.ops import native
from dorylax.ops.primitives.operator import OPERATORS
from dorylax.ops.primitives.structure import structure_of
from dorylax.ops.row_loops.rows import RowRange
from dorylax.ops.row_operators import run

DIRECTED = ["gather_sum", "gather_weighted", "expand", "collect", "select_sum", "degrees"]
CASES = [
    *((f"dorylax_{name}", (("direction", direction),)) for name in DIRECTED for direction in ("in", "out")),
    *(
        (f"dorylax_{name}", (("reduce", op),))
        for name in ("gather_extremum", "collect_extremum")
        for op in ("max", "min")
    ),
    *((f"dorylax_{name}", ()) for name in ("edge_dot", "edge_softmax", "self_loops")),
]
H, F = 2, 5


@pytest.fixture(params=["native", "numpy"])
def loops(request, monkeypatch):
    """The loops that serve."""
    if request.param == "numpy":
        monkeypatch.setattr(native, "usable", lambda *_: False)
    elif not native.status().available:
        pytest.skip(f"{native.status().reason}")
    return request.param


@functools.cache
def make_graph(kind):
    """Rows of all lengths, 0 among them, loops and parallel edges; "hub" has rows that kernels cut into spans."""
    rng = np.random.default_rng(0)
    sources, targets = rng.integers(0, 33, (2, 0 if kind == "no edges" else 300))
    sources[:10] = targets[:10]
    hub = 5001 if kind == "hub" else 0
    sources = np.concatenate([sources, rng.integers(0, 33, hub), np.full(hub, 5)])
    targets = np.concatenate([targets, np.full(hub, 3), rng.integers(0, 33, hub)])
    return Graph.from_coo(sources, targets, 37)


def values(kind, name, params, dtype):
    """Operands for all rows. Few values, so that some are equal; scores of -inf; NaN and infinities in "special"."""
    graph, rng = make_graph("random" if kind == "special" else kind), np.random.default_rng(1)
    operands = []
    for i, role in enumerate(OPERATORS[name].roles(dict(params))):
        count = graph.num_edges if role == "edge" else graph.num_vertices
        scores = name == "dorylax_edge_softmax"
        shape = (count, H) if scores or (name, i) == ("dorylax_gather_weighted", 1) else (count, H, F)
        x = rng.integers(-2, 3, shape).astype(float) if name == "dorylax_select_sum" else rng.standard_normal(shape)
        if scores:
            x = np.where(rng.random(shape) < 0.4, -np.inf, 50 * x)
        if kind == "special":
            x = np.where(rng.random(shape) < 0.05, rng.choice([np.nan, np.inf, -np.inf], shape), x)
        operands.append(x.astype(dtype))
    return graph, operands


@functools.cache
def expected(kind, name, params, dtype, computed_in=None):
    """What the primitive gives for all rows."""
    graph, operands = values(kind, name, params, dtype)
    with jax.enable_x64("float64" in (dtype, computed_in)):
        dense = [jnp.asarray(operand, computed_in) for operand in operands]
        results = OPERATORS[name](*dense, structure_of(graph), **dict(params))
        return [np.asarray(y) for y in (results if isinstance(results, list | tuple) else [results])]


def by_ranges(kind, name, params, dtype, cuts=(0, 3, 4, 20, 37)):
    """The same by row ranges, each a slice of the graph's own arrays."""
    graph, operands = values(kind, name, params, dtype)
    params = dict(params)
    side = graph.incoming if OPERATORS[name].side(params) == "in" else graph.outgoing
    edges = side.edges if OPERATORS[name].side(params) == "out" else None
    parts = []
    for begin, end in itertools.pairwise(cuts):
        offsets = side.offsets[begin : end + 1]
        sliced = {"own": slice(begin, end), "edge": slice(offsets[0], None) if edges is None else slice(None)}
        local = [
            x[sliced.get(role, slice(None))] for x, role in zip(operands, OPERATORS[name].roles(params), strict=True)
        ]
        parts.append(run(name, params, local, RowRange(offsets, side.neighbours, edges, first_row=begin)))
    return [np.concatenate(results) for results in zip(*parts, strict=True)]


def assert_close(actual, wanted, dtype, roundings=16):
    """To some roundings of the dtype of the largest result: more where longer sums add up more."""
    step = float(jnp.finfo(dtype).eps)
    for y, z in zip(actual, wanted, strict=True):
        if z.dtype == np.int32:
            assert y.dtype == np.int32
            np.testing.assert_array_equal(y, z)
        else:
            assert y.dtype == dtype
            largest = np.abs(z[np.isfinite(z)].astype(float)).max(initial=0)
            np.testing.assert_allclose(y.astype(float), z.astype(float), rtol=0, atol=roundings * step * largest)


def test_every_primitive_is_there():
    assert {name for name, operator in OPERATORS.items() if operator.compute_rows} == {name for name, _ in CASES}


@pytest.mark.parametrize(("name", "params"), CASES)
@pytest.mark.parametrize(("kind", "roundings"), [("random", 16), ("hub", 200), ("no edges", 0)])
@pytest.mark.usefixtures("loops")
def test_row_ranges_equal_the_primitive(kind, roundings, name, params):
    wanted = expected(kind, name, params, "float32", "float64")
    assert_close(by_ranges(kind, name, params, "float32"), wanted, "float32", roundings)


@pytest.mark.parametrize(("name", "params"), [case for case in CASES if OPERATORS[case[0]].operands])
@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
def test_other_dtypes(loops, dtype, name, params):
    assert_close(by_ranges("random", name, params, dtype), expected("random", name, params, dtype), dtype)


@pytest.mark.parametrize(("name", "params"), [case for case in CASES if OPERATORS[case[0]].operands])
def test_infinities_and_nan_are_the_primitives(loops, name, params):
    case = ("special", name, params, "float32")
    assert_close(by_ranges(*case), expected(*case), "float32")


@pytest.mark.skipif(not native.status().available, reason=f"{native.status().reason}")
@pytest.mark.parametrize(("name", "params"), [case for case in CASES if case[0].startswith("dorylax_gather")])
def test_native_sums_are_the_primitive_to_the_bit(name, params):
    (y,), (z,) = by_ranges("hub", name, params, "float32"), expected("hub", name, params, "float32")
    np.testing.assert_array_equal(y.view(np.int32), z.view(np.int32))


def rows_and_operands():
    rng = np.random.default_rng(0)
    rows = RowRange(np.array([4, 6, 6, 9]), rng.integers(0, 7, 12).astype(np.int32))
    return rows, rng.standard_normal((7, H, F)).astype(np.float32), rng.standard_normal((5, H)).astype(np.float32)


def test_edge_values_are_found_by_edges_where_rows_have_them(loops):
    rows, x, weight = rows_and_operands()
    edges = np.array([9, 9, 9, 9, 4, 0, 3, 3, 1, 9, 9, 9], np.int32)
    name, params = "dorylax_gather_weighted", {"direction": "out"}
    (found,) = run(name, params, [x, weight], rows._replace(edges=edges))
    (direct,) = run(name, params, [x, weight[edges[4:9]]], rows)
    np.testing.assert_array_equal(found, direct)


def test_operands_that_are_not_contiguous_or_not_aligned(loops):
    rows, x, weight = rows_and_operands()
    name, params = "dorylax_gather_weighted", {"direction": "in"}
    wanted = run(name, params, [x, weight], rows)
    odd = np.frombuffer(b"-" + weight.tobytes(), np.float32, offset=1).reshape(weight.shape)
    strided = RowRange(np.repeat(rows.offsets, 2)[::2], np.repeat(rows.neighbours, 3)[::3])
    np.testing.assert_array_equal(run(name, params, [np.asfortranarray(x), odd], strided), wanted)


def test_other_byte_orders_are_not_taken_for_native_floats(loops):
    rows, x, _ = rows_and_operands()
    (y,) = run("dorylax_gather_sum", {"direction": "in"}, [x.astype(">f4")], rows)
    assert_close([y.astype(np.float32)], run("dorylax_gather_sum", {"direction": "in"}, [x], rows), np.float32)


@pytest.mark.parametrize(
    ("name", "rows_written"),
    [("dorylax_edge_softmax", (5, 3)), ("dorylax_collect", (3,)), ("dorylax_collect_extremum", (3,))],
)
def test_results_go_where_they_should_and_nowhere_else(loops, name, rows_written):
    rows, x, weight = rows_and_operands()
    params = {"direction": "in", "reduce": "max"}
    operands = [weight, x[:3, :, 0]] if name == "dorylax_edge_softmax" else [x[:5]]
    wanted = run(name, params, operands, rows)
    out = [np.full((9, *y.shape[1:]), 7, np.float32) for y in wanted]
    results = run(name, params, operands, rows, out=out)
    for array, result, y, count in zip(out, results, wanted, rows_written, strict=True):
        assert np.shares_memory(result, array)
        np.testing.assert_array_equal(result, y)
        assert (array[count:] == 7).all()
    if name != "dorylax_edge_softmax":
        assert (results[0][1] == 0).all()  # its row is empty


def test_operands_without_columns(loops):
    rows, x, _ = rows_and_operands()
    (y,) = run("dorylax_gather_sum", {"direction": "in"}, [x[:, :, :0]], rows)
    assert y.shape == (3, H, 0)
    (y,) = run("dorylax_edge_dot", {}, [x[:3, :, :0], x[:, :, :0]], rows)
    np.testing.assert_array_equal(y, np.zeros((5, H)))


X, W = np.ones((7, H, F), np.float32), np.ones((5, H), np.float32)


@pytest.mark.parametrize(
    ("name", "operands", "changes", "out", "message"),
    [
        ("dorylax_sum", [X], {}, None, "'dorylax_sum' is not a graph operator: expected one of dorylax_collect"),
        ("dorylax_gather_scaled", [X], {}, None, "'dorylax_gather_scaled' only runs on a whole graph"),
        ("dorylax_gather_sum", [X, X], {}, None, "takes 1 operands \\(neighbour\\), got 2"),
        ("dorylax_gather_sum", [X[:, 0]], {}, None, "must have 3 axes"),
        ("dorylax_gather_sum", [X[:0]], {}, None, "must have at least 1 row"),
        (
            "dorylax_gather_weighted",
            [X, W[:4]],
            {},
            None,
            "operand 1 \\(edge\\) .* at least 5 rows, one per entry, got 4",
        ),
        ("dorylax_gather_weighted", [X, W[:, :1]], {}, None, "heads and columns as the others"),
        ("dorylax_edge_dot", [X[:2], X], {}, None, "operand 0 \\(own\\) .* must have 3 rows, got 2"),
        ("dorylax_edge_dot", [X[:3], X[:, :, 1:]], {}, None, "heads and columns as the others"),
        ("dorylax_edge_dot", [X[:3], X], {"edges": np.zeros(12, np.int32)}, None, "expected edges=None"),
        ("dorylax_gather_sum", [X], {"offsets": np.zeros(0, np.int64)}, None, "offsets must have shape \\[R\\+1\\]"),
        ("dorylax_gather_sum", [X], {"offsets": np.array([0, 1], np.int32)}, None, "offsets must be int64"),
        ("dorylax_gather_sum", [X], {"offsets": np.array([0, 13])}, None, "in 0 … 12, .*; got 0 … 13"),
        ("dorylax_gather_sum", [X], {"offsets": np.array([-1, 3])}, None, "in 0 … 12, .*; got -1 … 3"),
        ("dorylax_gather_sum", [X], {"neighbours": np.zeros(12, np.int64)}, None, "neighbours must be int32"),
        ("dorylax_gather_sum", [X], {"edges": np.zeros(8, np.int32)}, None, "in 0 … 8, .*; got 4 … 9"),
        ("dorylax_gather_sum", [X], {}, [], "has 1 results, got 0 arrays in out"),
        ("dorylax_gather_sum", [X], {}, [np.ones((2, H, F), np.float32)], "float32 \\[3, 2, 5\\] or longer"),
        ("dorylax_gather_sum", [X], {}, [np.ones((3, H, F))], "out\\[0\\] .* got float64"),
        ("dorylax_gather_sum", [X], {}, [np.ones((6, H, F), np.float32)[::2]], "not C-contiguous"),
        ("dorylax_gather_sum", [X], {}, [np.broadcast_to(np.float32(0), (3, H, F))], "read-only"),
        ("dorylax_gather_sum", [X], {}, [X[4:]], "must not overlap an operand"),
    ],
)
@pytest.mark.usefixtures("loops")
def test_what_does_not_fit_is_refused(name, operands, changes, out, message):
    rows = rows_and_operands()[0]._replace(**changes)
    with pytest.raises(ValueError, match=message):
        run(name, {"direction": "in"}, operands, rows, out=out)
