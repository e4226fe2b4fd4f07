"""Ids and values of edges belong to the edges: for every builder, after any chain of changes and orders."""

from __future__ import annotations

import pickle

import jax
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from support.edge_lists import apply, chains, listed

from dorylax.graph import Graph, GraphError
from dorylax.graph.reorder import user_order

SUMS = {
    "uint8": (200, "convert the values to int64"),
    "int8": (-100, "convert the values to int64"),
    "int32": (2**31 - 1, "convert the values to int64"),
    "int64": (-(2**63), "convert the values to float64"),
    "uint64": (2**64 - 1, "convert the values to float64"),
    "float16": (60000, "convert the values to float32"),
    "float32": (3e38, "convert the values to float64"),
    "float64": (1e308, "scale the values"),
}


@pytest.mark.parametrize("columns", [(), (2,)])
@pytest.mark.parametrize("dtype", SUMS)
def test_a_sum_of_equal_edges_that_exceeds_its_type_is_refused(dtype: str, columns: tuple[int, ...]) -> None:
    value, remedy = SUMS[dtype]
    edges = [2, 0, 2, 1], [0, 1, 0, 2]
    values = np.zeros((4, *columns), dtype)
    values[:3] = value
    message = rf"the sum of edge_data\['(w|edge_weight)'\] over the edges 2 → 0 exceeds {dtype}: {remedy}$"
    for make in (
        lambda: Graph.from_coo(*edges, edge_data={"w": values}, coalesce="sum"),
        lambda: Graph.from_edge_index(np.array(edges), edge_weight=values, coalesce="sum"),
        lambda: Graph.from_coo(*edges, edge_data={"w": values}).reorder([1, 2, 0]).coalesce("sum"),
    ):
        with pytest.raises(GraphError, match=message):
            make()
    values[2] = 0
    assert np.array_equal(
        Graph.from_coo(*edges, edge_data={"w": values}, coalesce="sum").edge_data["w"], values[[0, 1, 3]]
    )


def test_a_sum_that_wraps_on_the_way_and_infinite_values_are_right() -> None:
    values = np.array([100, 100, -100], np.int8)
    assert Graph.from_coo([0] * 3, [0] * 3, edge_data={"w": values}, coalesce="sum").edge_data["w"].tolist() == [100]
    infinite = np.array([np.inf, 1], np.float16)
    graph = Graph.from_coo([0] * 2, [0] * 2, edge_data={"w": infinite}, finite=False, coalesce="sum")
    assert graph.edge_data["w"].tolist() == [np.inf]
    many = Graph.from_coo([0] * 4096, [0] * 4096, edge_data={"w": np.full(4096, 1, np.float16)}, coalesce="sum")
    assert many.edge_data["w"].tolist() == [4096]


CHAINS = settings(max_examples=150, deadline=None)


def _graph(edges) -> Graph:
    return Graph.from_coo(*edges.ends, edges.num_vertices, edge_data={"w": [w for *_, w in edges.edges]})


@CHAINS
@given(chains())
def test_chains_of_transformations_keep_ids_and_values(case):
    edges, chain = case
    graph = _graph(edges)
    assert listed(graph) == edges.edges
    order = np.arange(edges.num_vertices)
    for name, argument in chain:
        graph, edges = apply(graph, name, argument), edges.changed(name, argument)
        assert listed(graph) == edges.edges, name
        assert graph.num_edge_ids == edges.num_ids
        fresh = Graph.from_coo(*edges.ends, edges.num_vertices)
        assert (graph.symmetric, graph.self_loops) == (fresh.symmetric, fresh.self_loops)
        order = order[list(argument)] if name == "reorder" else order
        np.testing.assert_array_equal(np.arange(len(order)) if graph.vertex_ids is None else graph.vertex_ids, order)
        rows = graph.incoming
        assert Graph.from_csr(rows.offsets, rows.neighbours).incoming.neighbours is rows.neighbours, "sources ascend"
        assert (rows.offsets.dtype, rows.neighbours.dtype) == (np.int64, np.int32)
    back = graph if user_order(graph) is None else graph.reorder(user_order(graph))
    assert back.vertex_ids is None
    assert listed(back) == edges.edges
    for ours, theirs in zip(back.host_rows(), Graph.from_coo(*edges.ends, len(order)).host_rows(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@CHAINS
@given(chains(), st.sampled_from(["values", "no ids"]))
def test_values_and_ids_change_no_rows(case, kind):
    edges, chain = case
    plain = Graph.from_coo(*edges.ends, edges.num_vertices, edge_ids=kind == "values")
    graph = _graph(edges)
    for name, argument in chain:
        given = "first" if name == "coalesce" else argument
        graph = apply(graph, name, given)
        plain = plain.with_self_loops() if name == "with_self_loops" else apply(plain, name, given)
    np.testing.assert_array_equal(plain.incoming.offsets, graph.incoming.offsets)
    np.testing.assert_array_equal(plain.incoming.neighbours, graph.incoming.neighbours)
    assert plain.edge_ids_fit is (kind == "values")
    assert (plain.symmetric, plain.self_loops) == (graph.symmetric, graph.self_loops)


@CHAINS
@given(chains(), st.booleans())
def test_a_graph_that_went_through_jax_has_the_same_order(case, late):
    edges, chain = case
    graph = _graph(edges)
    for name, argument in chain[: None if late else 1]:
        graph = apply(graph, name, argument)
    through = jax.device_get(jax.jit(lambda g: g)(graph))
    assert not through.symmetrise().coalesce().without_self_loops().knows_edge_data
    for other in (through, through.reorder(np.arange(graph.num_vertices)[::-1])):
        ids = np.arange(graph.num_vertices) if other.vertex_ids is None else other.vertex_ids
        rows = other.incoming.neighbours, np.repeat(np.arange(len(ids)), np.diff(np.asarray(_offsets(other))))
        order = np.arange(graph.num_edges) if other.edge_order is None else np.asarray(other.edge_order)
        ends = np.empty((graph.num_edges, 2), int)
        ends[order] = np.stack([ids[row] for row in rows], 1)
        np.testing.assert_array_equal(ends, np.array([(u, v) for _, u, v, _ in listed(graph)]).reshape(-1, 2))
        assert (other.edge_ids is None) == (graph.edge_ids is None)
        with pytest.raises(GraphError, match=r"graph.edge_data is there on the host only"):
            _ = other.edge_data


def _offsets(graph: Graph) -> np.ndarray:
    from dorylax.graph.compressed import as_int64

    return as_int64(graph.incoming.offsets)


@CHAINS
@given(chains(), st.randoms())
def test_compressed_rows_in_any_order_have_ids_by_place(case, random):
    edges, _ = case
    pairs = [(u, v) for _, u, v, _ in edges.edges]
    for by in (0, 1):  # rows by source, rows by destination
        shuffled = sorted(pairs, key=lambda pair: (pair[by], random.random()))
        values = np.arange(len(pairs)) * 2.0
        offsets = np.searchsorted([pair[by] for pair in shuffled], np.arange(edges.num_vertices + 1))
        entries = np.array([pair[1 - by] for pair in shuffled], np.int64)
        wanted = [(k, u, v, 2.0 * k) for k, (u, v) in enumerate(shuffled)]
        if by == 1:
            assert listed(Graph.from_csr(offsets, entries, edge_data={"w": values})) == wanted
        make = sp.csr_array if by == 0 else sp.csc_array
        shape = (edges.num_vertices,) * 2
        assert listed(Graph.from_scipy(make((values, entries, offsets), shape=shape), weight="w")) == wanted


def test_a_permutation_is_kept_only_where_there_is_one():
    by_target = Graph.from_coo([2, 0, 1], [0, 1, 1], 3)
    by_source = Graph.from_coo([0, 1, 2], [1, 1, 0], 3)
    other = Graph.from_coo([1, 2, 0], [1, 0, 1], 3)
    assert by_target.edge_order is None
    assert by_target.placed == "target"
    assert by_source.placed == "source"
    assert "outgoing" not in vars(by_source)  # nothing was computed
    np.testing.assert_array_equal(by_source.edge_order, [2, 0, 1])
    np.testing.assert_array_equal(other.edge_order, [1, 2, 0])
    lean = Graph.from_coo([1, 2, 0], [1, 0, 1], 3, edge_ids=False)
    assert isinstance(lean.placed, str)
    with pytest.raises(GraphError, match=r"have no ids: it was made without .*edge_ids=False"):
        _ = lean.edge_order


def test_later_arrays_are_picked_by_id():
    values = np.array([10.0, 20, 30, 40])
    graph = Graph.from_coo([0, 0, 1, 2], [1, 1, 0, 1], coalesce="first", edge_data={"w": values})
    np.testing.assert_array_equal(values[graph.edge_ids], [10, 30, 40])
    np.testing.assert_array_equal(graph.edge_data["w"], [10, 30, 40])
    both = graph.symmetrise()
    np.testing.assert_array_equal(both.edge_ids, [0, 2, 3, 4 + 3])
    np.testing.assert_array_equal(values[both.edge_ids % 4], both.edge_data["w"])
    summed = Graph.from_coo(
        [0, 0, 1, 2], [1, 1, 0, 1], coalesce="sum", edge_data={"w": values, "n": [[1], [2], [4], [8]]}
    )
    np.testing.assert_array_equal(summed.edge_data["w"], [30, 30, 40])
    np.testing.assert_array_equal(summed.edge_data["n"], [[3], [4], [8]])


def test_edge_data_is_not_copied_and_cannot_be_replaced():
    values = np.arange(3.0)
    graph = Graph.from_coo([0, 1, 2], [2, 0, 1], edge_data={"w": values})
    assert graph.edge_data["w"] is values
    with pytest.raises(TypeError):
        graph.edge_data["w"] = values  # type: ignore[index]
    again = pickle.loads(pickle.dumps(graph))
    assert listed(again) == listed(graph)


LOOPED = Graph.from_coo([0, 1], [1, 0], edge_data={"w": np.ones(2, np.float32), "kind": [[1, 2], [3, 4]]})
BAD = {
    "length": (lambda: Graph.from_coo([0], [1], edge_data={"w": [1, 2]}), r"edge_data\['w'\] has length 2: expected 1"),
    "scalar": (lambda: Graph.from_coo([0], [1], edge_data={"w": 1}), r"edge_data\['w'\] is a single value"),
    "text": (lambda: Graph.from_coo([0], [1], edge_data={"w": ["a"]}), r"edge_data\['w'\] holds text \(<U1\)"),
    "name": (lambda: Graph.from_coo([0], [1], edge_data={"": [1]}), r"names of edge_data must be text, got ''"),
    "no ids": (
        lambda: Graph.from_coo([0], [1], edge_data={"w": [1]}, edge_ids=False),
        r"edge_data w with edge_ids=False: values per edge need edge ids",
    ),
    "coalesce": (lambda: Graph.from_coo([0], [1], coalesce=True), r'coalesce must be False, "first".*got True'),
    "sum of nothing": (lambda: Graph.from_coo([0], [1], coalesce="sum"), r'coalesce="sum" adds the values.*have none'),
    "sum of bools": (
        lambda: Graph.from_coo([0], [1], edge_data={"b": [True]}, coalesce="sum"),
        r"edge_data\['b'\] is bool, which coalesce=\"sum\" cannot add",
    ),
    "loops unsaid": (
        LOOPED.with_self_loops,
        r"loop_data says nothing of w, kind: say what self-loops get, with_self_loops\(\{\"w\": …, \"kind\": …\}\)",
    ),
    "loops oversaid": (
        lambda: Graph.from_coo([0], [1]).with_self_loops({"w": 1}),
        r"loop_data has w, which the edges have not",
    ),
    "loop shape": (
        lambda: LOOPED.with_self_loops({"w": 1, "kind": 1}),
        r"loop_data\['kind'\] must be int64, \[2\] for all loops or \[2, 2\], one row per vertex; got int64 \[\]",
    ),
    "loop dtype": (lambda: LOOPED.with_self_loops({"w": 1, "kind": [0.5, 1]}), r"loop_data\['kind'\] must be int64"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_refused(case):
    make, message = BAD[case]
    with pytest.raises(GraphError, match=message):
        make()


def test_loops_may_get_a_value_each():
    graph = LOOPED.with_self_loops({"w": [5, 6], "kind": [7, 8]})
    np.testing.assert_array_equal(graph.edge_data["w"], np.float32([1, 1, 5, 6]))
    assert graph.edge_data["w"].dtype == np.float32
    np.testing.assert_array_equal(graph.edge_data["kind"], [[1, 2], [3, 4], [7, 8], [7, 8]])


def test_only_vertices_without_a_loop_get_theirs():
    graph = Graph.from_coo([0, 2], [0, 1], 3, edge_data={"w": [1, 2]}).with_self_loops({"w": [5, 6, 7]})
    np.testing.assert_array_equal(graph.edge_data["w"], [1, 2, 6, 7])


def test_ids_that_do_not_fit_are_refused_where_values_come(monkeypatch):
    graph = Graph.from_coo([0, 1, 2], [2, 0, 1], edge_data={"w": [1, 2, 3]})
    bare = Graph.from_coo([0, 1, 2], [2, 0, 1])
    monkeypatch.setattr("dorylax.graph.rows.MAX_EDGE_IDS", 5)
    with pytest.raises(GraphError, match=r"edge_data w: ids of 6 edges do not fit int32"):
        graph.symmetrise()
    assert not bare.symmetrise().edge_ids_fit
    monkeypatch.setattr("dorylax.graph.rows.MAX_EDGE_IDS", 2)
    with pytest.raises(GraphError, match=r"edge_data w: ids of 3 edges do not fit int32"):
        Graph.from_coo([0, 1, 2], [2, 0, 1], edge_data={"w": [1, 2, 3]})
    assert not Graph.from_coo([0, 1, 2], [2, 0, 1]).edge_ids_fit


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ([0, 1], r"order has length 2: expected 3"),
        ([0, 1, 3], r"order\[2\] = 3 is out of range"),
        ([0, -1, 2], r"order\[1\] = -1 is negative"),
        ([0, 2, 0], r"order\[0\] = 0 is repeated at order\[2\]"),
        ([0.0, 1.0, 2.0], r"order must hold integers"),
    ],
)
def test_bad_orders(order, message):
    with pytest.raises(GraphError, match=message):
        Graph.from_coo([0], [1], 3).reorder(order)


def test_rows_longer_than_a_span_and_many_spans(monkeypatch):
    rng = np.random.default_rng(0)
    sources, targets = rng.integers(0, 40, 500), np.minimum(rng.integers(0, 80, 500), 39)
    graph, order = Graph.from_coo(sources, targets, 40), rng.permutation(40)
    whole = graph.reorder(order)
    monkeypatch.setattr("dorylax.graph.reorder.SPAN", 8)
    for a, b in zip(jax.tree.leaves(graph.reorder(order)), jax.tree.leaves(whole), strict=True):
        np.testing.assert_array_equal(a, b)
