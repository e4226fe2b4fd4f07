"""Data sets and graphs: refusals, permutations, and their arrays on disk."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.edge_lists import apply, chains, listed
from support.stored import contents

from dorylax.graph import Dataset, Graph, GraphError, compressed

FEW = settings(max_examples=50, deadline=None)

V, F, C = 6, 4, 3


def _dataset(many: bool = False, directed: bool = True, **changes) -> Dataset:
    rng = np.random.default_rng(0)
    graph = Graph.from_coo(rng.integers(0, V, 14), rng.integers(0, V, 14), V)
    masks = np.arange(V) % 3
    return Dataset(
        **{
            "name": "made up",
            "graph": graph if directed else graph.symmetrise(),
            "features": rng.random((V, F), np.float32),
            "labels": rng.integers(0, 2, (V, C)).astype(np.float32) if many else np.arange(V, dtype=np.int32) % C,
            "num_classes": C,
            "train_mask": masks == 0,
            "val_mask": masks == 1,
            "test_mask": masks == 2,
            **changes,
        }
    )


def _assert_same(a: Dataset, b: Dataset) -> None:
    for field in dataclasses.fields(Dataset):
        if field.name != "graph":
            jax.tree.map(np.testing.assert_array_equal, getattr(a, field.name), getattr(b, field.name))
    np.testing.assert_array_equal(a.graph.incoming.offsets, b.graph.incoming.offsets)
    np.testing.assert_array_equal(a.graph.incoming.neighbours, b.graph.incoming.neighbours)
    assert a.graph.symmetric == b.graph.symmetric


def test_other_number_types_are_converted_and_the_right_ones_kept(tmp_path):
    data = _dataset(features=np.ones((V, F), np.int16), labels=np.zeros(V, np.uint8))
    assert (data.features.dtype, data.labels.dtype) == (np.float32, np.int32)
    assert _dataset(many=True, labels=np.ones((V, C), bool)).labels.dtype == np.float32
    np.save(tmp_path / "x.npy", np.ones((V, F), np.float32))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert _dataset(features=mapped).features is mapped


def _at(shape, position, value, dtype=np.float32) -> np.ndarray:
    array = np.zeros(shape, dtype)
    array[position] = value
    return array


EMPTY = np.zeros(V, bool)
# What is refused beside the table of tests/test_inputs.py.
BAD = {
    "one class each, said": ({"multilabel": False, "labels": np.ones((V, C))}, r"multilabel=False, but labels has"),
    "many classes each, said": ({"multilabel": True}, r"multilabel=True needs labels \[V, C\]"),
    "labels not binary": ({"labels": _at((V, C), (1, 2), 0.5)}, r"labels\[1, 2\] = 0\.5 is neither 0 nor 1"),
    "labels nan": ({"labels": _at((V, C), (1, 2), np.nan)}, r"labels\[1, 2\] = nan is neither"),
    "labels text, multi-label": ({"labels": np.full((V, C), "a")}, r"labels holds text \(<U1\)"),
    "one label": ({"labels": np.array(1)}, r"labels must be integers \[V\].*got shape \[\]"),
    "label that int32 would wrap": (
        {"labels": _at(V, 1, 2**32 + 1, np.int64), "num_classes": 2**31 - 1},
        r"labels\[1\] = 4294967297 is out of range: .*num_classes = 2147483647",
    ),
    "too many classes": ({"num_classes": 2**33}, r"num_classes must be ≥ 1 and ≤ 2147483647 .*, got 8589934592"),
    "masks overlap too": (
        {"val_mask": EMPTY, "test_mask": ~EMPTY},
        r"train_mask and test_mask overlap: train_mask\[0\]",
    ),
    "nothing to train on": ({"train_mask": EMPTY}, r"train_mask holds no vertex"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_names_array_position_and_value(case):
    changes, message = BAD[case]
    with pytest.raises(GraphError, match=message):
        _dataset(**changes)


def test_row_normalised_divides_by_row_sums_of_at_least_one():
    features = np.array([[1, 3], [0, 0], [0.25, 0.25], [2, 0], [0, 1], [5, 5]], np.float32)
    expected = [[0.25, 0.75], [0, 0], [0.25, 0.25], [1, 0], [0, 1], [0.5, 0.5]]
    data = _dataset(features=features)
    np.testing.assert_array_equal(data.row_normalised().features, np.array(expected, np.float32))
    assert data.features[0, 1] == 3  # the original is as it was


def test_standardised_columns_have_mean_0_and_deviation_1() -> None:
    features = np.array([[1, 7e6, 3], [5, 7e6, 3], [1, 7e6, 0], [5, 7e6, 0], [1, 7e6, 3], [5, 7e6, 0]], np.float32)
    data = _dataset(features=features)
    found = data.standardised().features
    assert found.dtype == np.float32
    np.testing.assert_allclose(
        found, [[-1, 0, 1], [1, 0, 1], [-1, 0, -1], [1, 0, -1], [-1, 0, 1], [1, 0, -1]], atol=1e-6
    )
    assert data.features[0, 0] == 1  # the original is as it was
    other = _dataset(features=np.array([[3, 7e6 + 2, 6]] * 6, np.float32))
    np.testing.assert_allclose(other.standardised(like=data).features, [[0, 2, 3]] * 6, atol=1e-6)
    with pytest.raises(
        GraphError, match=r"has 3 features per vertex, and .* 2: standardise by data of the same features"
    ):
        _dataset(features=features[:, :2]).standardised(like=data)


def test_further_inputs_of_vertices_move_and_those_of_edges_stay():
    data = _dataset(vertex_inputs={"pos": np.arange(2 * V).reshape(V, 2)}, edge_inputs={"w": np.arange(14)})
    moved = data.reorder([3, 1, 5, 0, 2, 4])
    np.testing.assert_array_equal(moved.vertex_inputs["pos"], data.vertex_inputs["pos"][[3, 1, 5, 0, 2, 4]])
    np.testing.assert_array_equal(moved.edge_inputs["w"], np.arange(14))


def test_edges_without_ids_have_no_inputs():
    graph = _dataset().graph.without_edge_ids()
    with pytest.raises(GraphError, match="the edges of this graph have no ids"):
        _dataset(graph=graph, edge_inputs={"w": np.ones(14)})


@FEW
@given(st.permutations(range(V)), st.booleans())
def test_reorder_moves_every_array_together(order, multilabel):
    data = _dataset(multilabel)
    moved = data.reorder(order)
    for name in ("features", "labels", "train_mask", "val_mask", "test_mask"):
        np.testing.assert_array_equal(getattr(moved, name), getattr(data, name)[order])
    ids = np.arange(V) if moved.graph.vertex_ids is None else moved.graph.vertex_ids
    np.testing.assert_array_equal(ids, order)


@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("reordered", [False, True])
def test_archive_round_trip_in_the_users_order(tmp_path, multilabel, directed, reordered):
    data = _dataset(multilabel, directed)
    moved = data.reorder([3, 1, 5, 0, 2, 4]).reorder([5, 4, 3, 2, 1, 0]) if reordered else data
    moved.save(tmp_path / "mine")
    _assert_same(Dataset.from_folder(tmp_path / "mine"), data)
    arrays = contents(tmp_path / "mine")
    assert bool(arrays["directed"]) is directed
    sources = np.repeat(np.arange(V), np.diff(arrays["indptr"]))
    np.testing.assert_array_equal(np.sort(sources), np.sort(data.graph.incoming.neighbours))  # rows are sources


def test_given_values_of_edges_override_those_of_the_graph():
    graph = Graph.from_coo([0, 1], [1, 0], V, edge_data={"w": np.zeros(2)})
    data = _dataset(graph=graph, edge_inputs={"w": [1, 2]})
    assert data.edge_inputs["w"].tolist() == dataclasses.replace(data, name="b").edge_inputs["w"].tolist() == [1, 2]


def test_only_labelled_vertices_of_an_archive_are_split(tmp_path):
    _save(tmp_path / "a.npz", labels=np.array([-1, 1]))
    data = Dataset.from_folder(tmp_path / "a.npz")
    assert (data.train_mask.tolist(), data.num_classes) == ([False, True], 2)


def _save(path, drop=(), **arrays) -> None:
    data = {
        "indptr": np.array([0, 1, 2]),
        "indices": np.array([1, 0], np.int32),
        "features": np.eye(2, dtype=np.float32),
        "labels": np.array([1, 0]),
        **arrays,
    }
    np.savez(path, **{name: array for name, array in data.items() if name not in drop})


def test_an_archive_without_masks_name_and_classes(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 100)
    features = rng.random((100, 3), np.float32)
    path = tmp_path / "plain.npz"
    np.savez(path, indptr=np.zeros(101, int), indices=np.zeros(0, int), features=features, labels=labels)
    data = Dataset.from_folder(path)
    assert (data.name, data.num_classes) == ("plain", 4)
    assert [int(mask.sum()) for mask in (data.train_mask, data.val_mask, data.test_mask)] == [60, 20, 20]
    other = Dataset.from_folder(path, split_seed=1)
    assert (other.train_mask != data.train_mask).any()


@pytest.mark.parametrize(
    ("drop", "arrays", "message"),
    [
        (("features", "labels"), {}, r"has no array features and no labels; .*Graph\.from_folder reads it"),
        (("features",), {}, r"has no array features; it has indptr, indices, labels"),
        ((), {"labels": np.array([0, 7]), "num_classes": np.array(3)}, r"labels\[1\] = 7 is out of range"),
        ((), {"num_classes": np.array([2, 2])}, r"num_classes must be one integer, got int64 \[2, 2\]$"),
        ((), {"num_classes": np.array(2.0)}, r"num_classes must be one integer, got float64 2\.0$"),
        (
            (),
            {"num_classes": np.array(2**33), "labels": np.array([0, 2**32 + 1])},
            r"num_classes must be .*8589934592$",
        ),
        ((), {"labels": np.array([0, 2**32 + 1])}, r"labels\[1\] = 4294967297 is out of range"),
        ((), {"labels": np.array([0, 2**64 - 1], np.uint64)}, r"labels\[1\] = 18446744073709551615 is out of range"),
        ((), {"labels": np.array([0, -2])}, r"labels\[1\] = -2 is negative"),
        ((), {"labels": np.array(1)}, r"labels must be integers \[V\], or .*got shape \[\]$"),
        ((), {"labels": np.array([0, np.nan])}, r"labels\[1\] = nan is not finite: give any number and leave"),
        ((), {"features": np.array(1.0)}, r"features must be real numbers \[V, F\], got float64 \[\]$"),
        ((), {"indptr": np.array(0)}, r"indptr must be one-dimensional"),
    ],
)
def test_bad_archives(tmp_path, drop, arrays, message):
    _save(tmp_path / "bad.npz", drop, **arrays)
    with pytest.raises(GraphError, match=rf"bad\.npz: {message}"):
        Dataset.from_folder(tmp_path / "bad.npz")


def test_what_an_archive_says_of_self_loops_is_checked(tmp_path):
    _save(tmp_path / "bad.npz", self_loops=np.array("all"))
    with pytest.raises(GraphError, match="self_loops is 'all', but it is 'none' vertices that have an edge"):
        Dataset.from_folder(tmp_path / "bad.npz")


def test_a_data_set_is_a_line():
    sizes, masks = "Dataset('made up': 6 vertices, 14 edges, 4 features, ", "; 2 train, 2 val, 2 test"
    assert repr(_dataset()) == f"{sizes}3 classes{masks})"
    assert repr(_dataset(many=True)) == f"{sizes}3 labels{masks})"
    targets = _dataset(labels=np.full((V, 2), 1.5, np.float32), num_classes=None, vertex_inputs={"pos": np.ones(V)})
    assert repr(targets) == f"{sizes}2 targets{masks}; inputs pos)"


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
    monkeypatch.setattr(compressed, "edge_fingerprint", lambda *_: checked.append(1) or (0, 0))
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
