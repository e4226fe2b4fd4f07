"""Self-loops and symmetry against the dense adjacency matrix, and in any memory order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dorylax.graph import Graph, GraphError

FEW = settings(max_examples=50, deadline=None)

CASES = st.integers(1, 7).flatmap(
    lambda v: st.tuples(
        st.just(v),
        st.lists(st.tuples(st.integers(0, v - 1), st.integers(0, v - 1)), max_size=25),
        st.permutations(range(v)),
    )
)
CHANGES = {
    "with_self_loops": lambda m: m + np.diag(m.diagonal() == 0),
    "without_self_loops": lambda m: m - np.diag(m.diagonal()),
    "symmetrise": lambda m: ((m + m.T) > 0).astype(int),
}


def _matrix_of(graph: Graph) -> np.ndarray:
    matrix = np.zeros((graph.num_vertices, graph.num_vertices), int)
    rows = np.repeat(np.arange(graph.num_vertices), np.diff(graph.incoming.offsets))
    np.add.at(matrix, (rows, graph.incoming.neighbours), 1)
    return matrix


@pytest.mark.parametrize("name", CHANGES)
@FEW
@given(case=CASES)
def test_against_the_matrix(name, case):
    v, pairs, _ = case
    graph = Graph.from_coo([a for a, _ in pairs], [b for _, b in pairs], v)
    changed = getattr(graph, name)()
    np.testing.assert_array_equal(_matrix_of(changed), CHANGES[name](_matrix_of(graph)))
    fresh = Graph.from_csr(changed.incoming.offsets, changed.incoming.neighbours)
    assert fresh.incoming.neighbours is changed.incoming.neighbours  # its rows were sorted
    assert (changed.symmetric, changed.self_loops) == (fresh.symmetric, fresh.self_loops)
    assert changed.incoming.offsets.dtype == np.int64
    assert changed.incoming.neighbours.dtype == np.int32


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
