"""What other libraries know of edges comes along in the user's order, or is refused by name."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from support.edge_lists import listed

from dorylax.graph import Graph, GraphError


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


def test_a_scipy_matrix_of_complex_numbers_is_refused():
    with pytest.raises(GraphError, match=r"edge_data\['weight'\] is complex \(complex128\)"):
        Graph.from_scipy(sp.csr_array(np.array([[1j]])))


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
    torch = pytest.importorskip("torch", reason="torch is not installed: it comes with the bench extra")
    pyg = pytest.importorskip("torch_geometric.data", reason="torch-geometric is not installed")
    index = torch.tensor([[2, 0, 1, 0], [0, 1, 2, 1]])
    data = pyg.Data(edge_index=index, edge_attr=torch.arange(8.0).reshape(4, 2), num_nodes=3)
    data.edge_weight, data.time = torch.tensor([1.0, 2, 3, 4], requires_grad=True), torch.arange(4)
    graph = Graph.from_pyg(data)
    assert _pairs(graph, "edge_weight") == [(2, 0, 1), (0, 1, 2), (1, 2, 3), (0, 1, 4)]
    assert sorted(graph.edge_data) == ["edge_attr", "edge_weight", "time"]
    data.x, data.title = torch.ones(3, 2), "mine"
    with pytest.raises(GraphError, match=r"data 'x' has a value per vertex, and a Graph holds none.*ignore=\['x'\]"):
        Graph.from_pyg(data)
    with pytest.raises(GraphError, match=r"'title' has neither a value per edge nor per vertex.*ignore=\['title'\]"):
        Graph.from_pyg(data, ignore=["x"])
    assert Graph.from_pyg(data, ignore=["x", "title", "time"]).edge_data.keys() == {"edge_attr", "edge_weight"}
    from dorylax.graph.importers import pyg as importer

    assert importer.read(Graph, data, ignore=()).vertex_data.keys() == {"x"}
    assert importer.read(Graph, data, ignore=()).other.keys() == {"title"}
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
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
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
        GraphError, match=r"source='source' must be one column of the table, whose columns are 'w', 'to'"
    ):
        Graph.from_dataframe(table)


def _weighted(value: float) -> np.ndarray:
    return np.array([1.0, value, 2.0])


def _networkx(value: float) -> nx.DiGraph:
    graph = nx.DiGraph()
    graph.add_weighted_edges_from([(0, 1, 1.0), (1, 2, value), (2, 0, 2.0)])
    return graph


def _pyg(value: float):
    torch = pytest.importorskip("torch", reason="torch is not installed: it comes with the bench extra")
    pyg = pytest.importorskip("torch_geometric.data", reason="torch-geometric is not installed")
    index = torch.tensor([[0, 1, 2], [1, 2, 0]])
    return pyg.Data(edge_index=index, edge_weight=torch.tensor(_weighted(value)), num_nodes=4)


ENDS = [0, 1, 2], [1, 2, 0]
NOT_FINITE = {
    "from_coo": lambda value: Graph.from_coo(*ENDS, edge_data={"weight": _weighted(value)}),
    "from_coo, float16": lambda value: Graph.from_coo(*ENDS, edge_data={"weight": _weighted(value).astype(np.float16)}),
    "from_coo, rows": lambda value: Graph.from_coo(
        *ENDS, edge_data={"weight": np.ones((3, 2)) * _weighted(value)[:, None]}
    ),
    "from_csr": lambda value: Graph.from_csr([0, 1, 2, 3], [2, 0, 1], edge_data={"weight": _weighted(value)}),
    "from_edge_index": lambda value: Graph.from_edge_index(np.array(ENDS), edge_weight=_weighted(value)),
    "from_scipy csr": lambda value: Graph.from_scipy(sp.csr_array((_weighted(value), ENDS))),
    "from_scipy csc": lambda value: Graph.from_scipy(sp.csc_array((_weighted(value)[[2, 0, 1]], [2, 0, 1], range(4)))),
    "from_scipy coo": lambda value: Graph.from_scipy(sp.coo_array((_weighted(value), ENDS))),
    "from_networkx": lambda value: Graph.from_networkx(_networkx(value)),
    "from_networkx, undirected": lambda value: Graph.from_networkx(_networkx(value).to_undirected()),
    "from_dgl": lambda value: Graph.from_dgl(_DGLGraph(list(zip(*ENDS, strict=True)), 3, {"weight": _weighted(value)})),
    "from_pyg": lambda value: Graph.from_pyg(_pyg(value)),
    "from_dataframe": lambda value: Graph.from_dataframe(
        pd.DataFrame({"source": ENDS[0], "target": ENDS[1], "weight": _weighted(value)})
    ),
    "self-loops": lambda value: Graph.from_coo(*ENDS, edge_data={"weight": np.ones(3)}).with_self_loops(
        {"weight": value}
    ),
}


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("made", NOT_FINITE)
def test_values_that_are_not_finite_are_refused_with_the_position_of_the_edge(made: str, value: float) -> None:
    message = rf"(edge|loop)_data\['(edge_)?weight'\]\[\d(, 0)?\] = {value} is not finite: replace"
    if made == "from_dataframe" and np.isnan(value):
        message = r"column 'weight' has no value in row 1"
    with pytest.raises(GraphError, match=message):
        NOT_FINITE[made](value)
    assert NOT_FINITE[made](1.0).num_edges >= 3


def test_values_that_are_not_finite_may_be_allowed() -> None:
    graph = Graph.from_coo(*ENDS, edge_data={"weight": _weighted(np.inf)}, finite=False)
    assert graph.edge_data["weight"].tolist() == [1, np.inf, 2]


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
    from dorylax.graph.importers import pyg as importer

    torch = pytest.importorskip("torch", reason="torch is not installed: it comes with the bench extra")
    data = pytest.importorskip("torch_geometric.data", reason="torch-geometric is not installed").Data
    values = torch.tensor([3.0, 1.0, 2.0])
    for form in (values, values.tolist()):
        graph = data(edge_index=torch.tensor(ENDS), num_nodes=3, **{name: form})
        if kept is None:
            message = (
                rf"^data.{name} has 3 rows, .* 3 of each: call it node_{name} or edge_{name}, or leave it out with"
            )
            with pytest.raises(GraphError, match=message):
                Graph.from_pyg(graph)
            assert importer.read(Graph, graph, ignore=(), per_node=(name,)).vertex_data.keys() == {name}
            assert Graph.from_pyg(graph, ignore=[name]).edge_data == {}
            continue
        found = importer.read(Graph, graph, ignore=())
        assert {"edge": found.graph.edge_data.keys(), "vertex": found.vertex_data.keys()}[kept] == {name}


def test_what_pyg_remembers_of_another_number_of_nodes_does_not_count() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed: it comes with the bench extra")
    data = pytest.importorskip("torch_geometric.data", reason="torch-geometric is not installed").Data
    graph = data(edge_index=torch.tensor(ENDS), num_nodes=5, time=torch.arange(3.0))
    assert not graph.is_node_attr("time")
    graph.time = torch.arange(5.0)
    with pytest.raises(GraphError, match="data 'time' has a value per vertex"):
        Graph.from_pyg(graph)
