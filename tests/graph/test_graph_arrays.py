"""Graphs on disk: ids and values of the edges come back, whatever order they were given in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from support.edge_lists import apply, chains, listed
from support.stored import contents

from dorylax.graph import Graph, GraphError, assemble


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chains())
def test_a_graph_comes_back_with_ids_and_values(tmp_path, case):
    edges, chain = case
    graph = Graph.from_coo(*edges.ends, edges.num_vertices, edge_data={"w": [w for *_, w in edges.edges]})
    for name, argument in chain:
        graph = apply(graph, name, argument)
    graph.save(tmp_path / "g")
    again = Graph.from_folder(tmp_path / "g")
    assert listed(again) == listed(graph)
    assert (again.symmetric, again.self_loops) == (graph.symmetric, graph.self_loops)


def test_values_of_an_archive_are_in_order_of_its_indices(tmp_path):
    rows = {"indptr": np.array([0, 2, 2, 3]), "indices": np.array([2, 1, 1], np.int32)}  # a row that is not sorted
    np.savez(tmp_path / "g.npz", **rows, edge_w=np.array([5.0, 6, 7]))
    assert listed(Graph.from_folder(tmp_path / "g.npz")) == [(0, 0, 2, 5.0), (1, 0, 1, 6.0), (2, 2, 1, 7.0)]
    np.savez(tmp_path / "g.npz", **rows, edge_w=np.array([5.0, 6, 7]), edge_ids=np.array([9, 4, 0]))
    assert listed(Graph.from_folder(tmp_path / "g.npz")) == [(0, 2, 1, 7.0), (4, 0, 1, 6.0), (9, 0, 2, 5.0)]


def test_ids_are_stored_only_where_they_are_not_the_places(tmp_path):
    for graph, stored in [
        (Graph.from_coo([0, 0, 1], [1, 2, 0]), False),
        (Graph.from_coo([0, 0, 1], [0, 1, 1]), False),  # in order of targets, which is that of sources
        (Graph.from_coo([1, 0, 0], [0, 1, 2]), True),
        (Graph.from_coo([1, 0, 0], [0, 1, 2], edge_ids=False), False),
    ]:
        graph.save(tmp_path / "g")
        assert ("edge_ids" in contents(tmp_path / "g")) is stored


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"edge_w": np.ones(2)}, r"g\.npz: edge_w has length 2: expected 3, one per entry of indices"),
        ({"edge_ids": np.array([0, 1, 1])}, r"g\.npz: edge_ids holds 1 twice"),
        ({"edge_ids": np.array([0, 1, -1])}, r"g\.npz: edge_ids\[2\] = -1 is negative"),
        ({"edge_ids": np.array([0.0, 1, 2])}, r"g\.npz: edge_ids must hold integers"),
        ({"edge_w": np.array(["a", "b", "c"])}, r"g\.npz: edge_data\['w'\] holds text"),
    ],
)
def test_bad_arrays(tmp_path, arrays, message):
    np.savez(tmp_path / "g.npz", indptr=np.array([0, 2, 2, 3]), indices=np.array([2, 1, 1], np.int32), **arrays)
    with pytest.raises(GraphError, match=message):
        Graph.from_folder(tmp_path / "g.npz")


def test_values_that_would_be_taken_for_ids_are_not_saved(tmp_path):
    graph = Graph.from_coo([0], [1], edge_data={"ids": [1]})
    with pytest.raises(GraphError, match=r"edge_data\['ids'\] cannot be saved.*rename it"):
        graph.save(tmp_path / "g")


def _moved(tmp_path: Path, **changes: object) -> Path:
    """An archive in another memory order."""
    arrays: dict[str, object] = {"indptr": [0, 1, 3], "indices": [1, 0, 1], "vertex_ids-1": [1, 0]} | changes
    np.savez(tmp_path / "moved.npz", **{name: array for name, array in arrays.items() if array is not None})
    return tmp_path / "moved.npz"


def test_rows_in_a_memory_order(tmp_path: Path) -> None:
    found = Graph.from_folder(_moved(tmp_path))
    given = Graph.from_folder(_moved(tmp_path, indptr=[0, 2, 3], indices=[0, 1, 0], **{"vertex_ids-1": None}))
    expected = given.reorder([1, 0])
    for array, other in zip(found.host_rows(), expected.host_rows(), strict=True):
        np.testing.assert_array_equal(array, other)
    assert found.vertex_ids.tolist() == [1, 0]
    np.testing.assert_array_equal(found.edge_order, expected.edge_order)
    found.save(tmp_path / "saved")
    np.testing.assert_array_equal(Graph.from_folder(tmp_path / "saved").incoming.neighbours, given.incoming.neighbours)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"vertex_ids-1": [0, 0]}, r"vertex_ids-1\[0\] = 0 is repeated at vertex_ids-1\[1\]"),
        ({"vertex_ids-1": [0]}, "vertex_ids-1"),
        ({"vertex_ids-1": [0.0, 1.0]}, "vertex_ids-1"),
        (
            {"vertex_ids-2": [1, 0]},
            r"memory order of another version \(vertex_ids-2\), this dorylax reads vertex_ids-1",
        ),
        (
            {"edge_weight": [1.0, 2.0, 3.0]},
            "has vertex_ids-1 and values of edges, and no edge_ids that say whose they are",
        ),
        ({"edge_ids": [0, 1, 2], "indices": [1, 0, 2]}, r"indices\[2\] = 2 is out of range"),
    ],
)
def test_wrong_memory_orders(tmp_path: Path, changes: dict[str, object], told: str) -> None:
    with pytest.raises(GraphError, match=told):
        Graph.from_folder(_moved(tmp_path, **changes))


def test_what_dorylax_wrote_is_believed_and_what_others_wrote_is_checked(tmp_path, monkeypatch):
    graph = Graph.from_coo(np.arange(2000) % 50, np.arange(2000) % 47).symmetrise().coalesce().without_edge_ids()
    graph.save(tmp_path / "g")
    checked = []
    monkeypatch.setattr(assemble, "edge_fingerprint", lambda *_: checked.append(1) or (0, 0))
    found = Graph.from_folder(tmp_path / "g")
    assert not checked
    assert (found.symmetric, found.self_loops) == (True, graph.self_loops)
    Graph.from_folder(tmp_path / "g", verify=False)
    assert len(checked) == 1
    arrays = contents(tmp_path / "g")
    np.savez(tmp_path / "other.npz", **arrays)
    Graph.from_folder(tmp_path / "other.npz")
    assert len(checked) == 2
    np.savez(tmp_path / "other.npz", **arrays | {"self_loops": np.array("all")})
    with pytest.raises(GraphError, match="self_loops is 'all', but it is 'some' vertices"):
        Graph.from_folder(tmp_path / "other.npz")
