"""Data sets of other libraries' objects: everything that comes along has a place, or is refused by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import dorylax
from dorylax.graph import Dataset, Graph, GraphError
from dorylax.graph.datasets import DatasetError

V, E = 5, 4
X = np.arange(2.0 * V).reshape(V, 2)
Y = np.array([0, 1, -1, 1, 0])
SOURCES, TARGETS = np.array([3, 0, 2, 1]), np.array([0, 4, 1, 0])  # sorted neither way
WEIGHT = np.array([0.5, 1.5, 2.5, 3.5])
TRAIN = np.array([True, False, False, True, False])


def pyg(**changes: Any) -> Any:
    torch = pytest.importorskip("torch", reason="torch is not installed: it comes with the bench extra")
    data = pytest.importorskip("torch_geometric.data", reason="torch-geometric is not installed")
    given = {
        "x": X.astype(np.float32),
        "y": Y[:, None],
        "train_mask": TRAIN,
        "pos": X[:, :1],
        "edge_index": np.stack([SOURCES, TARGETS]),
        "edge_weight": WEIGHT,
        **changes,
    }
    return data.Data(**{name: torch.tensor(v) if isinstance(v, np.ndarray) else v for name, v in given.items()})


class FakeDGL:
    """What `importers.dgl` reads of a `dgl.DGLGraph`."""

    is_homogeneous = True

    def __init__(self) -> None:
        self.ndata = {"feat": X, "label": Y, "train_mask": TRAIN, "pos": X[:, :1]}
        self.edata = {"edge_weight": WEIGHT}

    def edges(self, form: str, order: str) -> tuple[np.ndarray, np.ndarray]:
        assert (form, order) == ("uv", "eid")
        return SOURCES, TARGETS

    def num_nodes(self) -> int:
        return V


def nx(**changes: Any) -> Any:
    graph = networkx.DiGraph()
    for vertex in range(V):
        graph.add_node(
            vertex, a=X[vertex, 0], b=X[vertex, 1], label=Y[vertex], train_mask=TRAIN[vertex], pos=[X[vertex, 0]]
        )
    for source, target, weight in zip(SOURCES, TARGETS, WEIGHT, strict=True):
        graph.add_edge(int(source), int(target), edge_weight=weight)
    graph.add_nodes_from(changes.items())
    return graph


def tables(key: bool = False) -> tuple[pd.DataFrame, pd.DataFrame]:
    vertices = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "label": Y, "train_mask": TRAIN, "pos": X[:, 0]})
    edges = pd.DataFrame({"source": SOURCES, "target": TARGETS, "edge_weight": WEIGHT})
    if key:
        names = np.array(list("pqrst"), object)
        vertices = vertices.assign(id=names).sample(frac=1, random_state=0)
        edges = edges.assign(source=names[SOURCES], target=names[TARGETS])
    return vertices, edges


def _by_key() -> Dataset:
    vertices, edges = tables(key=True)
    data = Dataset.from_dataframes(vertices, edges, key="id", features=["a", "b"])
    assert vertices["a"].tolist() == data.features[:, 0].tolist()  # in the order of the table
    assert vertices["id"].tolist() == data.vertex_names.tolist()
    return data.reorder(np.argsort(vertices["a"].to_numpy()))


MADE = {
    "pyg": lambda: Dataset.from_pyg(pyg()),
    "dgl": lambda: Dataset.from_dgl(FakeDGL()),
    "networkx": lambda: Dataset.from_networkx(nx(), features=["a", "b"], labels="label"),
    "dataframes": lambda: Dataset.from_dataframes(*tables(), features=["a", "b"]),
    "dataframes, by key": _by_key,
}


@pytest.mark.parametrize("made", MADE)
def test_everything_has_its_place(made: str) -> None:
    data = MADE[made]()
    np.testing.assert_array_equal(data.features, X.astype(np.float32))
    np.testing.assert_array_equal(data.labels, Y)
    np.testing.assert_array_equal(data.train_mask, TRAIN)
    assert data.vertex_inputs.keys() == {"pos"}
    np.testing.assert_array_equal(data.vertex_inputs["pos"].reshape(-1), X[:, 0])
    assert data.edge_inputs.keys() == {"edge_weight"}
    if made == "networkx":  # which lists edges by source, in the order of nodes
        order = np.argsort(SOURCES, kind="stable")
        np.testing.assert_array_equal(data.edge_inputs["edge_weight"], WEIGHT[order])
    else:
        np.testing.assert_array_equal(data.edge_inputs["edge_weight"], WEIGHT)
    assert (data.graph.num_vertices, data.graph.num_edges, data.num_classes) == (V, E, 2)


def test_features_and_labels_may_be_arrays() -> None:
    data = Dataset.from_networkx(nx(), features=X[:, :1], labels=Y, ignore=["label"])
    assert data.num_features == 1
    assert data.vertex_inputs.keys() == {"a", "b", "pos"}


def test_all_columns_that_are_left_are_features() -> None:
    data = Dataset.from_dataframes(*tables(), ignore=["b"])
    np.testing.assert_array_equal(data.features, X[:, [0, 0]])
    assert not data.vertex_inputs


def test_one_column_is_features_too() -> None:
    for one in ("a", ["a"]):
        assert Dataset.from_networkx(nx(), features=one, labels="label").features.tolist() == X[:, :1].tolist()


def test_one_of_several_splits() -> None:
    masks = np.stack([TRAIN, ~TRAIN], axis=1)
    data = Dataset.from_pyg(pyg(train_mask=masks, y=abs(Y)), split=1)
    np.testing.assert_array_equal(data.train_mask, ~TRAIN)
    with pytest.raises(GraphError, match=r"^train_mask holds 2 splits: choose one, split \(data.split\) = 0 … 1$"):
        Dataset.from_pyg(pyg(train_mask=masks))


BAD = {
    "text of nodes": (
        lambda: Dataset.from_pyg(pyg(names=list("abcde")), ignore=[]),
        r"names.*ignore=\['names'\]$",
    ),
    "no features": (
        lambda: Dataset.from_pyg(pyg(x=None)),
        r"^features='x': vertices have no value 'x', but 'pos', 'train_mask', 'y'; an array will do, too$",
    ),
    "an unknown name": (
        lambda: Dataset.from_networkx(nx(), features=["a", "c"], labels="label"),
        r"^features=\['a', 'c'\]: vertices have no value 'c', but 'a', 'b', 'label', 'pos', 'train_mask'; an array",
    ),
    "missing at a node": (
        lambda: Dataset.from_networkx(nx(**{"new": {"a": 1.0}}), features="a", labels="label"),
        r"^vertex 5 has no 'b', which other vertices have: give it one, or leave it out with ignore=\['b'\]$",
    ),
    "a column of text": (
        lambda: Dataset.from_dataframes(tables()[0].assign(city="x"), tables()[1], features=["a", "b"]),
        r"^vertex_inputs\['city'\] holds text .*; or leave it out with ignore=\['city'\]$",
    ),
    "a name that is taken": (
        lambda: Dataset.from_dataframes(tables()[0].assign(x=1), tables()[1], features=["a", "b"]),
        r"the name 'x', which models are called with already: rename it; or leave it out with ignore=\['x'\]$",
    ),
    "a shuffled index": (
        lambda: Dataset.from_dataframes(tables()[0].sample(frac=1, random_state=0), tables()[1]),
        r"^the index of the table of vertices is not 0 … V-1 in this order, so edges may name vertices by index or by row: ",
    ),
    "gaps in the index": (
        lambda: Dataset.from_dataframes(tables()[0].set_index(np.array([0, 1, 2, 3, 9])), tables()[1]),
        r"vertices\.reset_index\(\) makes it a column for key=…, vertices\.reset_index\(drop=True\) leaves rows$",
    ),
    "no such key": (
        lambda: Dataset.from_dataframes(*tables(), key="id"),
        r"^key='id' must be a column of the table of vertices, whose columns are 'a', 'b', 'label', 'train_mask', 'pos'$",
    ),
    "a key twice": (
        lambda: Dataset.from_dataframes(tables(key=True)[0].assign(id="p"), tables(key=True)[1], key="id"),
        r"^key='id' holds 'p' twice: each vertex needs a key of its own$",
    ),
    "a key that is missing": (
        lambda: Dataset.from_dataframes(tables(key=True)[0].replace("p", None), tables(key=True)[1], key="id"),
        r"^key='id' has no value in row \d \(1 such rows\)",
    ),
    "text among features": (
        lambda: Dataset.from_dataframes(tables()[0].assign(city="x"), tables()[1]),
        r"^features 'city' holds text .*: encode it as numbers, or leave it out with ignore=\['city'\]$",
    ),
    "an edge from nowhere": (
        lambda: Dataset.from_dataframes(tables(key=True)[0], tables(key=True)[1].replace("q", "z"), key="id"),
        r"^column 'source' of row 3 names 'z', which is not a vertex: key='id' does not hold it$",
    ),
    "two columns of a name": (
        lambda: Dataset.from_dataframes(pd.concat([tables()[0]] * 2, axis=1), tables()[1]),
        r"^the table of vertices has two columns 'a': rename one$",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_has_no_place_is_refused_by_name(case: str) -> None:
    make, message = BAD[case]
    with pytest.raises(GraphError, match=message):
        make()


CITIES = ["ulm", "aachen", None, "aachen", "ulm"]
CODED = [1, 0, -1, 0, 1]


def _named_networkx() -> Dataset:
    graph = networkx.relabel_nodes(nx(), dict(enumerate("pqrst")))
    networkx.set_node_attributes(graph, dict(zip("pqrst", CITIES, strict=True)), "label")
    return Dataset.from_networkx(graph, features=["a", "b"])


TEXT_LABELS = {
    "dataframes": lambda: Dataset.from_dataframes(tables()[0].assign(label=CITIES), tables()[1], features=["a", "b"]),
    "dataframes, categorical": lambda: Dataset.from_dataframes(
        tables()[0].assign(label=pd.Categorical(CITIES)), tables()[1], features=["a", "b"]
    ),
    "networkx": _named_networkx,
    "pyg": lambda: Dataset.from_pyg(pyg(y=CITIES)),
}


@pytest.mark.parametrize("made", TEXT_LABELS)
def test_text_labels_are_classes_with_names(made: str) -> None:
    data = TEXT_LABELS[made]()
    assert (data.labels.tolist(), data.num_classes, data.class_names.tolist()) == (CODED, 2, ["aachen", "ulm"])


NAMES = {
    "text": (list("pqrst"), list("pqrst")),
    "NumPy text": (np.array(list("pqrst")), list("pqrst")),
    "integers": (np.array([7, 3, 9, 1, 5], np.int16), [7, 3, 9, 1, 5]),
    "mixed": ([("a", 1), 2.5, "r", 3, "é"], ["('a', 1)", "2.5", "r", "3", "é"]),
    "wide": ([2**70, 1, 2, 3, 4], [str(2**70), "1", "2", "3", "4"]),
}


@pytest.mark.parametrize("form", NAMES)
def test_names_of_vertices_go_with_their_rows_and_into_the_file(tmp_path: Any, form: str) -> None:
    given, shown = NAMES[form]
    data = dataclasses.replace(MADE["dataframes"](), original_ids=given)
    order = [4, 2, 0, 3, 1]
    assert data.reorder(order).vertex_names.tolist() == [shown[vertex] for vertex in order]
    data.reorder(order).save(tmp_path / "a")
    assert Dataset.from_folder(tmp_path / "a").vertex_names.tolist() == data.vertex_names.tolist() == shown


BAD_NAMES = {
    "NUL": (lambda: ["p", "q\0", "r", "s", "t"], r"^original_ids\[1\] = 'q\\x00' contains NUL: rename it$"),
    "surrogate": (lambda: ["p", "q\udc80", "r", "s", "t"], r"^original_ids\[1\] = 'q\\udc80' is not valid Unicode"),
    "too few": (lambda: ["p", "q"], r"^original_ids has length 2: expected 5, one per vertex$"),
}


@pytest.mark.parametrize("case", BAD_NAMES)
def test_bad_names_are_refused(case: str) -> None:
    make, message = BAD_NAMES[case]
    data = MADE["dataframes"]()
    with pytest.raises(GraphError, match=message):
        dataclasses.replace(data, original_ids=make())


def test_nul_in_the_ids_of_other_libraries_is_refused() -> None:
    named = networkx.relabel_nodes(nx(), {0: "p", 1: "p\0"})
    with pytest.raises(GraphError, match=r"^nodes\[1\] = 'p\\x00' contains NUL"):
        Graph.from_networkx(named, ignore=["a", "b", "label", "train_mask", "pos"])
    vertices, edges = tables(key=True)
    with pytest.raises(GraphError, match=r"^key='id'\[\d\] = 'p\\x00' contains NUL"):
        Dataset.from_dataframes(vertices.replace("q", "p\0"), edges.replace("q", "p\0"), key="id")


def _without_masks() -> Any:
    graph = networkx.DiGraph([(k, (k + 1) % 10) for k in range(10)])
    networkx.set_node_attributes(graph, {k: {"a": float(k), "label": k % 2} for k in range(10)})
    return graph


def _archive_without_masks(folder: Path, *, reordered: bool = False, **labels: Any) -> Path:
    graph = Graph.from_coo(range(10), [*range(1, 10), 0])
    np.savez(
        folder / "rings.npz",
        indptr=graph.incoming.offsets,
        indices=graph.incoming.neighbours,
        features=np.ones((10, 1)),
        **({"labels": np.arange(10) % 2} | labels),
        **({"vertex_ids-1": np.arange(10)[::-1].astype(np.int32)} if reordered else {}),
    )
    return folder / "rings.npz"


WITHOUT_MASKS: dict[str, Callable[[Path], Dataset]] = {
    "from_networkx": lambda _: Dataset.from_networkx(_without_masks(), "rings"),
    "load an object": lambda _: dorylax.load(_without_masks(), name="rings"),
    "from_npz": lambda folder: Dataset.from_folder(_archive_without_masks(folder)),
    "load": lambda folder: dorylax.load(_archive_without_masks(folder)),
    "reordered": lambda folder: dorylax.load(_archive_without_masks(folder, reordered=True)),
}


@pytest.mark.parametrize("how", WITHOUT_MASKS)
def test_data_without_masks_are_split_and_the_log_says_so_once(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, how: str
) -> None:
    data = WITHOUT_MASKS[how](tmp_path)
    assert [int(mask.sum()) for mask in (data.train_mask, data.val_mask, data.test_mask)] == [6, 2, 2]
    (said,) = (record.getMessage() for record in caplog.records)
    assert said.startswith("rings has no masks: 60 % of its labelled vertices train, 20 % validate and 20 % test")


def test_a_split_that_is_given_or_not_needed_is_not_logged(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    data, other = (Dataset.from_networkx(_without_masks(), split_seed=seed) for seed in (0, 1))
    assert (other.train_mask != data.train_mask).any()
    caplog.clear()
    Dataset.from_networkx(nx(), features="a")
    Dataset.from_networkx(_without_masks(), labels=None, ignore=["label"])
    Dataset.from_folder(_archive_without_masks(tmp_path, labels=np.full(10, -1), num_classes=2))
    assert not caplog.records


def test_data_without_labels() -> None:
    data = Dataset.from_dataframes(*tables(), labels=None, features=["a"], ignore=["label", "train_mask"])
    assert not data.train_mask.any()
    assert "no labels" in repr(data)
    with pytest.raises(GraphError, match=r"vertices have no value 'class', .*; labels=None stands for none$"):
        Dataset.from_dataframes(*tables(), labels="class")


def test_columns_of_several_classes_keep_their_names() -> None:
    vertices, edges = tables()
    vertices = vertices.assign(red=[1, 0, 1, 0, 1], blue=[1, 1, 0, 0, 0], cold=[0.5, 1, 2, 3, 4])
    options = {"features": ["a"], "ignore": ["label", "train_mask"]}
    data = Dataset.from_dataframes(vertices, edges, labels=["red", "blue"], **options)
    assert (data.multilabel, data.class_names.tolist()) == (True, ["red", "blue"])
    assert Dataset.from_dataframes(vertices, edges, labels=["red", "cold"], **options).class_names is None


LOADED = {
    "pyg": lambda: dorylax.load(pyg()),
    "dgl": lambda: dorylax.load(FakeDGL()),
    "networkx": lambda: dorylax.load(nx(), features=["a", "b"]),
    "scipy": lambda: dorylax.load(
        scipy.sparse.coo_array((WEIGHT, (SOURCES, TARGETS)), shape=(V, V)), features=X, labels=Y, train_mask=TRAIN
    ),
}


@pytest.mark.parametrize("made", LOADED)
def test_load_takes_objects_of_other_libraries(made: str) -> None:
    data = LOADED[made]()
    np.testing.assert_array_equal(data.features, X.astype(np.float32))
    np.testing.assert_array_equal(data.labels, Y)
    np.testing.assert_array_equal(data.train_mask, TRAIN)
    assert sorted(data.edge_inputs[min(data.edge_inputs)].tolist()) == WEIGHT.tolist()


def test_load_passes_the_split_and_names_other_types() -> None:
    matrix = scipy.sparse.csr_array(np.eye(10))
    splits = [dorylax.load(matrix, features=np.eye(10), labels=np.arange(10) % 2, split_seed=seed) for seed in (0, 1)]
    assert (splits[0].train_mask != splits[1].train_mask).any()
    assert splits[0].val_mask.sum() == 2
    with pytest.raises(
        DatasetError, match=r"^load takes a name, a path, a PyG Data, .*, got ndarray: dorylax.Dataset takes"
    ):
        dorylax.load(np.eye(3))


@pytest.mark.parametrize("layout", ["csr", "csc", "coo"])
def test_a_data_set_takes_a_scipy_matrix(layout: str) -> None:
    matrix = scipy.sparse.coo_array((WEIGHT, (SOURCES, TARGETS)), shape=(V, V)).asformat(layout)
    data = Dataset("mine", matrix, X, Y)
    assert (data.graph.num_edges, data.edge_inputs.keys()) == (E, {"weight"})
    with pytest.raises(GraphError, match=r"^graph must be a dorylax.Graph or a SciPy sparse matrix, got ndarray: "):
        Dataset("mine", np.eye(V), X, Y)
