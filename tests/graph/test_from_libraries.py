"""Objects of other libraries: all values have a place in a graph or data set, or are refused by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from support.edge_lists import listed

import dorylax
from dorylax.graph import Dataset, Graph, GraphError, from_libraries
from dorylax.graph.datasets import DatasetError


def _torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed: it comes with the bench extra")


def _torch_geometric() -> Any:
    return pytest.importorskip("torch_geometric.data", reason="torch-geometric is not installed")


def _pairs(graph: Graph, name: str) -> list[tuple[int, int, Any]]:
    """(source, target, value) of each edge, in order of ids."""
    slots = np.arange(graph.num_edges) if graph.edge_order is None else np.argsort(graph.edge_order)
    targets = np.repeat(np.arange(graph.num_vertices), np.diff(graph.incoming.offsets))[slots]
    values = graph.edge_data[name].tolist()
    return list(zip(graph.incoming.neighbours[slots].tolist(), targets.tolist(), values, strict=True))


@pytest.mark.parametrize("layout", ["csr", "csc", "coo", "lil", "dok", "bsr"])
def test_values_of_a_scipy_matrix_are_weights(layout):
    dense = np.array([[0.0, 2, 0], [3, 0, 4], [0, 0, 5]])
    graph = Graph.from_scipy(sp.csr_array(dense).asformat(layout))
    weights = {(u, v): w for u, v, w in _pairs(graph, "weight")}
    assert weights == {(0, 1): 2, (1, 0): 3, (1, 2): 4, (2, 2): 5}
    assert list(Graph.from_scipy(sp.csr_array(dense).asformat(layout), weight=None).edge_data) == []
    assert not Graph.from_scipy(sp.csr_array(dense), weight=None, edge_ids=False).edge_ids_fit


def test_stored_zeros_and_duplicates_of_a_scipy_matrix_are_edges():
    entries = (np.array([0.0, 7, 8]), ([1, 0, 0], [0, 1, 1]))
    graph = Graph.from_scipy(sp.coo_array(entries, shape=(2, 2)), weight="w")
    assert listed(graph) == [(0, 1, 0, 0.0), (1, 0, 1, 7.0), (2, 0, 1, 8.0)]
    assert listed(graph.coalesce("sum")) == [(0, 1, 0, 0.0), (1, 0, 1, 15.0)]


@pytest.mark.parametrize("kind", [nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph])
def test_attributes_of_networkx_edges(kind):
    graph = kind()
    graph.add_nodes_from([0, 1, 2])
    edges = [(2, 0, 1.5), (1, 1, 2.5), (0, 1, 3.5)] + ([(2, 0, 9.5)] if graph.is_multigraph() else [])
    graph.add_edges_from([(u, v, {"w": w, "at": [w, u]}) for u, v, w in edges])
    found = Graph.from_networkx(graph)
    wanted = [(u, v, data["w"]) for u, v, data in graph.edges(data=True)]
    back = [] if graph.is_directed() else [(v, u, w) for u, v, w in wanted if u != v]
    assert _pairs(found, "w") == wanted + back
    assert found.edge_data["at"].shape == (len(wanted) + len(back), 2)
    if not graph.is_directed():
        given = len(wanted)
        reverse = [given + k for k, (u, v, _) in enumerate(wanted) if u != v]
        assert found.edge_ids.tolist() == [*range(given), *reverse]


def test_what_networkx_attributes_are_refused():
    graph = nx.Graph([(0, 1, {"w": 1.0}), (1, 2, {"name": "a"})])
    with pytest.raises(GraphError, match=r"edge 1 – 2 has no attribute 'w', which other edges have.*ignore=\['w'\]"):
        Graph.from_networkx(graph)
    with pytest.raises(GraphError, match=r"edge 0 – 1 has no attribute 'name'"):
        Graph.from_networkx(graph, ignore=["w"])
    assert Graph.from_networkx(graph, ignore=["w", "name"]).num_edges == 4
    named = nx.Graph([(0, 1, {"name": "a"})])
    with pytest.raises(GraphError, match=r"edge attribute 'name' holds text \(<U1\).*ignore=\['name'\]"):
        Graph.from_networkx(named)
    with pytest.raises(GraphError, match=r"node attribute 'club' has a value per vertex.*ignore=\['club'\]"):
        Graph.from_networkx(nx.karate_club_graph())
    karate = Graph.from_networkx(nx.karate_club_graph(), ignore=["club"])
    assert (karate.num_edges, karate.edge_data["weight"].sum()) == (156, 2 * 231)
    with pytest.raises(GraphError, match=r"ignore must be a list of names, got 'club'"):
        Graph.from_networkx(nx.karate_club_graph(), ignore="club")
    ragged = nx.Graph([(0, 1, {"w": [1.0]}), (1, 2, {"w": [1.0, 2.0]})])
    with pytest.raises(GraphError, match=r"edge attribute 'w' has rows of different lengths"):
        Graph.from_networkx(ragged)


def test_edge_index_brings_attributes():
    index = np.array([[0, 0, 2], [2, 1, 0]])
    attributes, weights = np.arange(6.0).reshape(3, 2), [1.0, 2, 3]
    graph = Graph.from_edge_index(index, edge_attr=attributes, edge_weight=weights)
    assert _pairs(graph, "edge_weight") == [(0, 2, 1), (0, 1, 2), (2, 0, 3)]
    assert graph.edge_data["edge_attr"] is attributes
    with pytest.raises(GraphError, match=r"edge_data\['edge_attr'\] has length 2: expected 3"):
        Graph.from_edge_index(index, edge_attr=attributes[:2])


def test_pyg_data():
    torch = _torch()
    pyg = _torch_geometric()
    index = torch.tensor([[2, 0, 1, 0], [0, 1, 2, 1]])
    data = pyg.Data(edge_index=index, edge_attr=torch.arange(8.0).reshape(4, 2), num_nodes=3)
    data.edge_weight, data.time = torch.tensor([1.0, 2, 3, 4], requires_grad=True), torch.arange(4)
    graph = Graph.from_pyg(data)
    assert _pairs(graph, "edge_weight") == [(2, 0, 1), (0, 1, 2), (1, 2, 3), (0, 1, 4)]
    assert sorted(graph.edge_data) == ["edge_attr", "edge_weight", "time"]
    data.x = torch.ones(3, 2)
    with pytest.raises(GraphError, match=r"data 'x' has a value per vertex, and a Graph holds none.*ignore=\['x'\]"):
        Graph.from_pyg(data)
    data.title = "mine"
    with pytest.raises(GraphError, match=r"'title' has neither a value per edge nor per vertex.*ignore=\['title'\]"):
        Graph.from_pyg(data, ignore=["x"])
    assert Graph.from_pyg(data, ignore=["x", "title", "time"]).edge_data.keys() == {"edge_attr", "edge_weight"}
    assert from_libraries.pyg(Graph, data, ignore=["title"]).vertex_data.keys() == {"x"}
    with pytest.raises(GraphError, match=r"data has no edge_index"):
        Graph.from_pyg(pyg.Data(x=torch.ones(3, 2)))
    with pytest.raises(GraphError, match=r"from_pyg takes a torch_geometric.data.Data, got HeteroData"):
        Graph.from_pyg(pyg.HeteroData())


class _DGLGraph:
    """As `dgl.DGLGraph` is documented: edges in order of their ids, features by name."""

    def __init__(self, edges, num_nodes, edata=None, ndata=None, is_homogeneous=True) -> None:
        self._edges, self._num_nodes = edges, num_nodes
        self.edata, self.ndata, self.is_homogeneous = edata or {}, ndata or {}, is_homogeneous

    def num_nodes(self) -> int:
        return self._num_nodes

    def edges(self, form="uv", order="eid"):
        assert (form, order) == ("uv", "eid")
        return tuple(np.array(ends) for ends in zip(*self._edges, strict=True))


def test_dgl_graphs():
    edges = [(2, 0), (0, 1), (1, 2), (0, 1)]
    graph = Graph.from_dgl(_DGLGraph(edges, 4, {"w": np.arange(4.0)}))
    assert graph.num_vertices == 4
    assert listed(graph) == [(k, *edge, float(k)) for k, edge in enumerate(edges)]
    with pytest.raises(GraphError, match=r"ndata 'feat' has a value per vertex.*ignore=\['feat'\]"):
        Graph.from_dgl(_DGLGraph(edges, 4, ndata={"feat": np.ones((4, 2))}))
    assert Graph.from_dgl(_DGLGraph(edges, 4, {"w": np.ones(4)}, {"f": np.ones(4)}), ignore=["f", "w"]).edge_data == {}
    with pytest.raises(GraphError, match=r"edata\['w'\] holds text \(<U1\).*ignore=\['w'\]"):
        Graph.from_dgl(_DGLGraph(edges, 4, {"w": np.array(list("abcd"))}))
    with pytest.raises(GraphError, match=r"from_dgl takes a homogeneous graph.*dgl.to_homogeneous"):
        Graph.from_dgl(_DGLGraph(edges, 4, is_homogeneous=False))


def test_tables():
    table = pd.DataFrame({"w": [1.0, 2, 3], "to": [0, 1, 1], "from": [2, 0, 0], "n": pd.array([1, 2, 3], "Int64")})
    graph = Graph.from_dataframe(table.set_index([[7, 7, 9]]), "from", "to", 4)
    assert graph.num_vertices == 4
    assert _pairs(graph, "w") == [(2, 0, 1), (0, 1, 2), (0, 1, 3)]
    assert graph.edge_data["n"].dtype == np.int64
    summed = Graph.from_dataframe(table, "from", "to", coalesce="sum")
    assert _pairs(summed, "n") == [(2, 0, 1), (0, 1, 5)]
    for change, message in [
        ({"kind": list("abc")}, r"column 'kind' holds text.*ignore=\['kind'\]"),
        ({"n": pd.array([1, None, 3], "Int64")}, r"column 'n' has no value in row 1 \(1 such rows\)"),
        ({"from": list("abc")}, r"column 'from' must hold vertices as integers.*pandas.factorize"),
        ({"from": [0.5, 1, 2]}, r"column 'from' must hold vertices as integers.*float64"),
        ({3: [1, 2, 3]}, r"column 3 must have a name of its own, a text"),
        ({"to": [0, 1, 9]}, r"column 'to'\[2\] = 9 is out of range"),
    ]:
        with pytest.raises(GraphError, match=message):
            Graph.from_dataframe(
                table.assign(**change) if 3 not in change else table.assign(x=1).rename(columns={"x": 3}),
                "from",
                "to",
                4,
            )
    assert "kind" not in Graph.from_dataframe(table.assign(kind=list("abc")), "from", "to", ignore=["kind"]).edge_data
    with pytest.raises(
        GraphError, match=r"source='source' must be one column of the table of edges, whose columns are 'w', "
    ):
        Graph.from_dataframe(table, "source")
    with pytest.raises(GraphError, match=r"source='source' must be one column .*: give source=… and target=…"):
        Graph.from_dataframe(table.rename(columns={"from": "id"}))  # a first column is no end of edges by itself


@pytest.mark.parametrize("ends", [("source", "target"), ("src", "dst"), ("from", "to"), ("u", "v")])
def test_usual_names_of_the_ends_of_edges_need_no_argument(ends: tuple[str, str]) -> None:
    table = pd.DataFrame({"w": [0.5, 1.5], ends[1]: [1, 2], ends[0]: [0, 1]})
    graph = Graph.from_dataframe(table)
    assert [array.tolist() for array in graph.host_rows()] == [[0, 0, 1, 2], [0, 1]]
    assert graph.edge_data["w"].tolist() == [0.5, 1.5]
    people = pd.DataFrame({"id": ["x", "y", "z"], "f": [0.0, 1.0, 2.0], "label": [0, 1, 0]})
    data = Dataset.from_dataframes(
        people, table.replace({ends[0]: {0: "x", 1: "y"}, ends[1]: {1: "y", 2: "z"}}), key="id"
    )
    assert list(data.edge_inputs) == ["w"]
    assert data.graph.host_rows()[1].tolist() == [0, 1]


ENDS = [0, 1, 2], [1, 2, 0]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused_with_the_position_of_the_edge(value: float) -> None:
    with pytest.raises(GraphError, match=rf"edge_data\['weight'\]\[1\] = {value} is not finite: replace"):
        Graph.from_coo(*ENDS, edge_data={"weight": [1.0, value, 2.0]})
    with pytest.raises(GraphError, match=rf"loop_data\['weight'\]\[0\] = {value} is not finite: replace"):
        Graph.from_coo(*ENDS, edge_data={"weight": np.ones(3)}).with_self_loops({"weight": value})


@pytest.mark.parametrize("number", [int, np.int64, np.int32, np.uint8])
def test_networkx_nodes_that_are_the_numbers_0_to_v_keep_them(number: type) -> None:
    graph = nx.DiGraph()
    graph.add_weighted_edges_from([(number(2), number(0), 5.0), (number(0), number(1), 6.0)], weight="w")
    assert listed(Graph.from_networkx(graph)) == [(0, 2, 0, 5.0), (1, 0, 1, 6.0)]


@pytest.mark.parametrize(
    ("name", "kept"),
    [("edge_time", "edge"), ("node_time", "vertex"), ("pos", "vertex"), ("time", None), ("knowledge", None)],
)
def test_pyg_values_of_a_graph_with_as_many_edges_as_vertices_go_by_their_names(name: str, kept: str | None) -> None:
    torch = _torch()
    data = _torch_geometric().Data
    values = torch.tensor([3.0, 1.0, 2.0])
    for form in (values, values.tolist()):
        graph = data(edge_index=torch.tensor(ENDS), num_nodes=3, **{name: form})
        if kept is None:
            message = (
                rf"^data.{name} has 3 rows, .* 3 of each: call it node_{name} or edge_{name}, or leave it out with"
            )
            with pytest.raises(GraphError, match=message):
                Graph.from_pyg(graph)
            assert from_libraries.pyg(Graph, graph, ignore=(), per_node=(name,)).vertex_data.keys() == {name}
            assert Graph.from_pyg(graph, ignore=[name]).edge_data == {}
            continue
        found = from_libraries.pyg(Graph, graph, ignore=())
        assert {"edge": found.graph.edge_data.keys(), "vertex": found.vertex_data.keys()}[kept] == {name}


V, E = 5, 4
X = np.arange(2.0 * V).reshape(V, 2)
Y = np.array([0, 1, -1, 1, 0])
SOURCES, TARGETS = np.array([3, 0, 2, 1]), np.array([0, 4, 1, 0])  # sorted neither way
WEIGHT = np.array([0.5, 1.5, 2.5, 3.5])
TRAIN = np.array([True, False, False, True, False])


def pyg_data(**changes: Any) -> Any:
    torch = _torch()
    data = _torch_geometric()
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


def dgl_graph() -> Any:
    ndata = {"feat": X, "label": Y, "train_mask": TRAIN, "pos": X[:, :1]}
    return _DGLGraph(list(zip(SOURCES, TARGETS, strict=True)), V, {"edge_weight": WEIGHT}, ndata)


def attributed(**changes: Any) -> Any:
    graph = nx.DiGraph()
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
    "pyg": lambda: Dataset.from_pyg(pyg_data()),
    "dgl": lambda: Dataset.from_dgl(dgl_graph()),
    "networkx": lambda: Dataset.from_networkx(attributed(), features=["a", "b"], labels="label"),
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
    data = Dataset.from_networkx(attributed(), features=X[:, :1], labels=Y, ignore=["label"])
    assert data.num_features == 1
    assert data.vertex_inputs.keys() == {"a", "b", "pos"}


def test_all_columns_that_are_left_are_features() -> None:
    data = Dataset.from_dataframes(*tables(), ignore=["b"])
    np.testing.assert_array_equal(data.features, X[:, [0, 0]])
    assert not data.vertex_inputs


def test_one_of_several_splits() -> None:
    masks = np.stack([TRAIN, ~TRAIN], axis=1)
    data = Dataset.from_pyg(pyg_data(train_mask=masks, y=abs(Y)), split=1)
    np.testing.assert_array_equal(data.train_mask, ~TRAIN)
    with pytest.raises(GraphError, match=r"^train_mask holds 2 splits: choose one, split \(data.split\) = 0 … 1$"):
        Dataset.from_pyg(pyg_data(train_mask=masks))


BAD = {
    "text of nodes": (
        lambda: Dataset.from_pyg(pyg_data(names=list("abcde")), ignore=[]),
        r"names.*ignore=\['names'\]$",
    ),
    "no features": (
        lambda: Dataset.from_pyg(pyg_data(x=None)),
        r"^features='x': vertices have no value 'x', but 'pos', 'train_mask', 'y'; an array will do, too$",
    ),
    "an unknown name": (
        lambda: Dataset.from_networkx(attributed(), features=["a", "c"], labels="label"),
        r"^features=\['a', 'c'\]: vertices have no value 'c', but 'a', 'b', 'label', 'pos', 'train_mask'; an array",
    ),
    "missing at a node": (
        lambda: Dataset.from_networkx(attributed(**{"new": {"a": 1.0}}), features="a", labels="label"),
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
    graph = nx.relabel_nodes(attributed(), dict(enumerate("pqrst")))
    nx.set_node_attributes(graph, dict(zip("pqrst", CITIES, strict=True)), "label")
    return Dataset.from_networkx(graph, features=["a", "b"])


TEXT_LABELS = {
    "dataframes": lambda: Dataset.from_dataframes(tables()[0].assign(label=CITIES), tables()[1], features=["a", "b"]),
    "dataframes, categorical": lambda: Dataset.from_dataframes(
        tables()[0].assign(label=pd.Categorical(CITIES)), tables()[1], features=["a", "b"]
    ),
    "networkx": _named_networkx,
    "pyg": lambda: Dataset.from_pyg(pyg_data(y=CITIES)),
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
    named = nx.relabel_nodes(attributed(), {0: "p", 1: "p\0"})
    with pytest.raises(GraphError, match=r"^nodes\[1\] = 'p\\x00' contains NUL"):
        Graph.from_networkx(named, ignore=["a", "b", "label", "train_mask", "pos"])
    vertices, edges = tables(key=True)
    with pytest.raises(GraphError, match=r"^key='id'\[\d\] = 'p\\x00' contains NUL"):
        Dataset.from_dataframes(vertices.replace("q", "p\0"), edges.replace("q", "p\0"), key="id")


def _without_masks() -> Any:
    graph = nx.DiGraph([(k, (k + 1) % 10) for k in range(10)])
    nx.set_node_attributes(graph, {k: {"a": float(k), "label": k % 2} for k in range(10)})
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
    Dataset.from_networkx(attributed(), features="a")
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


def test_load_passes_the_split_and_names_other_types() -> None:
    matrix = sp.csr_array(np.eye(10))
    splits = [dorylax.load(matrix, features=np.eye(10), labels=np.arange(10) % 2, split_seed=seed) for seed in (0, 1)]
    assert (splits[0].train_mask != splits[1].train_mask).any()
    assert splits[0].val_mask.sum() == 2
    with pytest.raises(
        DatasetError, match=r"^load takes a name, a path, a PyG Data, .*, got ndarray: dorylax.Dataset takes"
    ):
        dorylax.load(np.eye(3))


@pytest.mark.parametrize("layout", ["csr", "csc", "coo"])
def test_a_data_set_takes_a_scipy_matrix(layout: str) -> None:
    matrix = sp.coo_array((WEIGHT, (SOURCES, TARGETS)), shape=(V, V)).asformat(layout)
    data = Dataset("mine", matrix, X, Y)
    assert (data.graph.num_edges, data.edge_inputs.keys()) == (E, {"weight"})
    with pytest.raises(GraphError, match=r"^graph must be a dorylax.Graph or a SciPy sparse matrix, got ndarray: "):
        Dataset("mine", np.eye(V), X, Y)
