"""Every builder gives the graph that the dense adjacency matrix, SciPy, networkx and PyG's convention say."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from dorylax.graph import Graph, GraphError
from dorylax.graph.rows import SPAN

FEW = settings(max_examples=50, deadline=None)

PAIRS = st.integers(1, 8).flatmap(
    lambda v: st.tuples(st.just(v), st.lists(st.tuples(st.integers(0, v - 1), st.integers(0, v - 1)), max_size=30))
)


def _matrix(v: int, pairs) -> np.ndarray:
    """`[u, v]` counts the edges u → v."""
    matrix = np.zeros((v, v), int)
    for source, target in pairs:
        matrix[source, target] += 1
    return matrix


def _matrix_of(graph: Graph) -> np.ndarray:
    """The same, read from both directions of a graph, which must agree."""
    v = graph.num_vertices
    incoming, outgoing = np.zeros((v, v), int), np.zeros((v, v), int)
    targets = np.repeat(np.arange(v), np.diff(graph.incoming.offsets))
    np.add.at(incoming, (graph.incoming.neighbours, targets), 1)
    sources = np.repeat(np.arange(v), np.diff(graph.outgoing.offsets))
    np.add.at(outgoing, (sources, graph.outgoing.neighbours), 1)
    np.testing.assert_array_equal(incoming, outgoing)
    # An outgoing entry and the slot that it names are the same edge.
    np.testing.assert_array_equal(graph.incoming.neighbours[graph.outgoing.edges], sources)
    np.testing.assert_array_equal(targets[graph.outgoing.edges], graph.outgoing.neighbours)
    order = np.lexsort((graph.incoming.neighbours, targets))
    np.testing.assert_array_equal(order, np.arange(graph.num_edges))  # slots are by (target, source)
    assert graph.incoming.offsets.dtype == graph.outgoing.offsets.dtype == np.int64
    assert graph.incoming.neighbours.dtype == graph.outgoing.neighbours.dtype == graph.outgoing.edges.dtype == np.int32
    return incoming


@FEW
@given(PAIRS, st.sampled_from([np.int32, np.int64, np.uint16, list]), st.sampled_from([False, "first"]))
def test_from_coo(case, kind, coalesce):
    v, pairs = case
    columns = [a for a, _ in pairs], [b for _, b in pairs]
    sources, targets = columns if kind is list else (np.array(column, kind) for column in columns)
    graph = Graph.from_coo(sources, targets, v, coalesce=coalesce)
    expected = _matrix(v, pairs)
    np.testing.assert_array_equal(_matrix_of(graph), expected.clip(max=1) if coalesce else expected)
    owner = np.repeat(np.arange(v), np.diff(graph.incoming.offsets))
    edges = list(zip(graph.incoming.neighbours.tolist(), owner.tolist(), strict=True))
    places = np.arange(len(edges)) if graph.edge_order is None else graph.edge_order
    ids = np.arange(len(edges)) if graph.edge_ids is None else graph.edge_ids
    order = ids[places]
    assert [pairs[k] for k in order] == edges
    for before, after in pairwise(order):
        assert pairs[before] != pairs[after] or before < after  # equal edges keep the user's order
    if coalesce:
        assert all(pairs.index(pairs[k]) == k for k in order)  # the first of equal edges is kept


def test_from_coo_counts_vertices_and_does_not_write_to_its_arguments():
    sources, targets = np.array([3, 0], np.int32), np.array([1, 1], np.int32)
    sources.flags.writeable = targets.flags.writeable = False
    assert Graph.from_coo(sources, targets).num_vertices == 4
    assert Graph.from_coo([], []).num_vertices == 0


@FEW
@given(PAIRS, st.sampled_from(["csr", "csc", "coo", "lil", "dok"]), st.sampled_from([sp.csr_array, sp.csr_matrix]))
def test_from_scipy(case, layout, family):
    v, pairs = case
    expected = _matrix(v, pairs)
    graph = Graph.from_scipy(family(expected).asformat(layout))
    np.testing.assert_array_equal(_matrix_of(graph), expected.clip(max=1))


@FEW
@given(PAIRS, st.sampled_from([nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph]), st.randoms())
def test_from_networkx(case, kind, random):
    v, pairs = case
    nodes = list(range(v))
    random.shuffle(nodes)
    graph = kind()
    graph.add_nodes_from(nodes)
    graph.add_edges_from(pairs)
    expected = nx.to_numpy_array(graph, nodelist=range(v), weight=None)  # multi-edges add up, an undirected loop is one
    np.testing.assert_array_equal(_matrix_of(Graph.from_networkx(graph)), expected)
    expected = nx.to_numpy_array(graph, nodelist=nodes, weight=None)
    np.testing.assert_array_equal(_matrix_of(Graph.from_networkx(graph, nodes)), expected)


@pytest.mark.parametrize("nodes", [[0, 1], [0, 1, 1], [0, 1, 5], [0, 1, 2, 2]])
def test_from_networkx_refuses_a_wrong_list_of_nodes(nodes):
    with pytest.raises(GraphError, match=rf"nodes must list each of the graph's 3 nodes once: got {len(nodes)}"):
        Graph.from_networkx(nx.path_graph(3), nodes)


@FEW
@given(PAIRS)
def test_from_edge_index(case):
    v, pairs = case
    edge_index = np.array(pairs, np.int64).reshape(-1, 2).T
    np.testing.assert_array_equal(_matrix_of(Graph.from_edge_index(edge_index, v)), _matrix(v, pairs))


@FEW
@given(PAIRS, st.randoms(), st.sampled_from([np.int32, np.int64]))
def test_from_csr_with_rows_in_any_order(case, random, kind):
    v, pairs = case
    shuffled = sorted(pairs, key=lambda pair: (pair[1], random.random()))
    offsets = np.searchsorted([b for _, b in shuffled], np.arange(v + 1)).astype(kind)
    sources = np.array([a for a, _ in shuffled], kind)
    before = sources.copy()
    np.testing.assert_array_equal(_matrix_of(Graph.from_csr(offsets, sources)), _matrix(v, pairs))
    np.testing.assert_array_equal(sources, before)


def test_a_row_out_of_order_across_two_spans_is_noticed():
    sources = np.ones(SPAN + 1, np.int32)
    sources[SPAN] = 0  # the only fall, between the last entry of one span and the first of the next
    graph = Graph.from_csr([0, SPAN + 1, SPAN + 1], sources)
    assert graph.incoming.neighbours[0] == 0


def test_from_csr_believes_what_it_is_told():
    offsets, sources = np.array([0, 1, 1]), np.array([0], np.int32)
    graph = Graph.from_csr(offsets, sources, symmetric=True, self_loops="some")
    assert graph.symmetric
    assert graph.self_loops == "some"
    assert "outgoing" not in vars(graph)  # nothing was computed


def test_memory_mapped_rows_stay_on_disk(tmp_path):
    graph = Graph.from_coo([0, 2, 1, 1], [1, 1, 0, 2], 3)
    np.save(tmp_path / "offsets.npy", graph.incoming.offsets)
    np.save(tmp_path / "sources.npy", graph.incoming.neighbours)
    offsets = np.load(tmp_path / "offsets.npy", mmap_mode="r")
    sources = np.load(tmp_path / "sources.npy", mmap_mode="r")
    mapped = Graph.from_csr(offsets, sources)
    assert mapped.incoming.offsets is offsets
    assert mapped.incoming.neighbours is sources
    assert mapped.symmetric
    np.testing.assert_array_equal(_matrix_of(mapped), _matrix_of(graph))
    for other in (mapped.with_self_loops(), mapped.symmetrise(), mapped.reorder([1, 2, 0])):
        assert other.num_vertices == 3
    coo = Graph.from_coo(np.load(tmp_path / "sources.npy", mmap_mode="r"), [0, 1, 1, 2])
    np.testing.assert_array_equal(_matrix_of(coo), _matrix_of(graph))


BAD = {
    "source out of range": (
        lambda: Graph.from_coo([0, 5], [1, 1], 3),
        r"sources\[1\] = 5 is out of range.*< num_vertices = 3",
    ),
    "target negative": (lambda: Graph.from_coo([0, 1, 2], [0, 1, -4], 3), r"targets\[2\] = -4 is negative"),
    "beyond int32": (
        lambda: Graph.from_coo(np.array([2**32 + 1]), np.array([0]), 3),
        r"sources\[0\] = 4294967297 is out of range",
    ),
    "unsigned, beyond int64": (
        lambda: Graph.from_coo(np.array([2**64 - 1], np.uint64), np.array([0], np.uint64), 3),
        r"sources\[0\] = 18446744073709551615 is out of range",
    ),
    "lengths": (lambda: Graph.from_coo([0, 1], [1], 3), r"sources has length 2 and targets has length 1"),
    "fractions": (lambda: Graph.from_coo([0.5], [1], 3), r"sources must hold integers, got float64"),
    "bools": (lambda: Graph.from_coo(np.array([True]), [1], 3), r"sources must hold integers, got bool"),
    "matrix": (lambda: Graph.from_coo([[0]], [1], 3), r"sources must be one-dimensional, got shape \(1, 1\)"),
    "vertex count": (lambda: Graph.from_coo([0], [1], -1), r"num_vertices must be in 0 … 2147483647.*got -1"),
    "too many vertices": (lambda: Graph.from_coo([2**31], [1]), r"num_vertices must be in 0 … 2147483647.*2147483649"),
    "offsets start": (lambda: Graph.from_csr([1, 2], [0, 0]), r"offsets\[0\] = 1: must be 0"),
    "offsets fall": (
        lambda: Graph.from_csr([0, 2, 1, 3], [0, 1, 2]),
        r"offsets\[2\] = 1 is below offsets\[1\] = 2: must not decrease",
    ),
    "unsigned offsets fall": (
        lambda: Graph.from_csr(np.array([0, 2, 1, 3], np.uint64), [0, 1, 2]),
        r"offsets\[2\] = 1 is below offsets\[1\] = 2",
    ),
    "offsets end": (lambda: Graph.from_csr([0, 1, 2], [0]), r"offsets\[2\] = 2: must equal the length of sources, 1"),
    "offsets empty": (lambda: Graph.from_csr([], []), r"offsets has length 0"),
    "csr source": (lambda: Graph.from_csr([0, 1, 2], [0, 2]), r"sources\[1\] = 2 is out of range.*num_vertices = 2"),
    "not square": (lambda: Graph.from_scipy(sp.csr_array((2, 3))), r"adjacency must be square.*\(2, 3\)"),
    "edge_index shape": (
        lambda: Graph.from_edge_index(np.zeros((3, 2), int)),
        r"edge_index must have shape \[2, E\], got \[3, 2\]",
    ),
    "edge_index transposed list": (
        lambda: Graph.from_edge_index([0, 1]),
        r"edge_index must have shape \[2, E\], got \[2\]",
    ),
    "edge_index value": (
        lambda: Graph.from_edge_index([[0, 1], [1, 7]], 3),
        r"edge_index\[1\]\[1\] = 7 is out of range",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_names_array_position_and_value(case):
    build, message = BAD[case]
    with pytest.raises(GraphError, match=message):
        build()
