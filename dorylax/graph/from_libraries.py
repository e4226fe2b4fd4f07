"""Objects of other libraries, which this package does not import: one function per library, and one table of roles.

A function reads an object into `Imported`: the graph with the edges' values as `edge_data`, and the vertices' values, which
a `Graph` cannot hold. `graph_alone` returns the graph for `Graph.from_…`, `by_role` the arguments of `Dataset` for
`Dataset.from_…`. Both name and refuse any value that would be lost and that the caller does not ignore.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypedDict, final

import numpy as np

from dorylax.graph.array_names import MASKS
from dorylax.graph.arrays import as_array, stored_names
from dorylax.graph.build import from_incoming, from_outgoing, from_pairs
from dorylax.graph.compressed import AnyGraph
from dorylax.graph.features import checked_inputs
from dorylax.graph.labels import named_labels
from dorylax.graph.splits import chosen_masks
from dorylax.graph.transform import Coalesce
from dorylax.graph.validate import GraphError, as_integers

_OF_NODES = ("x", "y", "pos", "batch", *MASKS)  # by PyG's conventions


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Imported(Generic[AnyGraph]):
    """An object of another library.

    Attributes:
        graph: The graph, with the edges' values as its `edge_data`.
        vertex_data: The vertices' values under their names, in their original form (tensors, lists, dicts), for a `Dataset`.
        names: Names of the vertices `[V]`, integers or text; None if their numbers are their names.
    """

    graph: AnyGraph
    vertex_data: dict[str, Any]
    names: np.ndarray | None = None


def graph_alone(imported: Imported[AnyGraph], ignore: Collection[str], what: str) -> AnyGraph:
    """The graph of an object without other values than those to ignore; `what` is the library's word for vertices' values.

    Raises a GraphError if a value would be lost.
    """
    for name in imported.vertex_data:
        if name not in ignore:
            raise GraphError(
                f"{what} {name!r} has a value per vertex, and a Graph holds none: give it to a Dataset (features, labels, "
                f"masks, vertex_inputs), and {_leave(name, here=' here')}"
            )
    return imported.graph


def pyg(
    kind: type[AnyGraph], data: Any, *, ignore: Collection[str], per_node: Collection[str] = ()
) -> Imported[AnyGraph]:
    """Read a homogeneous `torch_geometric.data.Data`; `per_node` names values per node, in addition to PyG's own.

    Raises a GraphError as `Graph.from_pyg`, for a value of the whole graph, or if V = E and a name does not tell values per
    node from values per edge.
    """
    _check_names(ignore)
    if not hasattr(data, "is_edge_attr"):
        raise GraphError(
            f"from_pyg takes a torch_geometric.data.Data, got {type(data).__name__}: a HeteroData has several kinds of "
            "edges (data.to_homogeneous() makes one of them), and Graph.from_edge_index takes one edge_index"
        )
    if getattr(data, "edge_index", None) is None:
        advice = "; it has adj_t: Graph.from_scipy(data.adj_t.t().to_scipy()) takes that" if "adj_t" in data else ""
        raise GraphError(f"data has no edge_index{advice}")
    V, E = data.num_nodes, np.shape(data.edge_index)[-1]
    edges: dict[str, Any] = {}
    vertices: dict[str, Any] = {}
    for name in data.keys() if callable(data.keys) else data.keys:
        if name in ignore or name in ("edge_index", "num_nodes"):
            continue
        value = data[name]
        # PyG's is_node_attr decides by length and, where V = E, by whether the name contains "edge"
        rows = len(value) if isinstance(value, list | tuple) else (*getattr(value, "shape", ()), None)[0]
        of_nodes = name in _OF_NODES or name in per_node or name.startswith("node_")
        if rows == V == E and not of_nodes and not name.startswith("edge_"):
            raise GraphError(
                f"data.{name} has {V} rows, one per node or one per edge, as the graph has {V} of each: call it "
                f"node_{name} or edge_{name}, or {_leave(name)}"
            )
        if rows == E and not (rows == V and of_nodes):
            edges[name] = _numbers(f"data.{name}", name, value)
        elif rows == V:
            vertices[name] = value
        else:
            raise GraphError(
                f"{name!r} has neither a value per edge nor per vertex, and a Graph holds no such thing: {_leave(name)}"
            )
    return Imported(edge_index(kind, data.edge_index, V, edge_data=edges), vertices)


def edge_index(kind: type[AnyGraph], pairs: Any, num_vertices: int | None, **options: Any) -> AnyGraph:
    """The graph of class `kind` of an `edge_index`; options as in `from_pairs`."""
    array = as_array("edge_index", pairs)
    if array.ndim != 2 or len(array) != 2:
        raise GraphError(f"edge_index must have shape [2, E], got {list(array.shape)}")
    names = ("edge_index[0]", "edge_index[1]")
    sources, targets = (as_integers(name, row) for name, row in zip(names, array, strict=True))
    return from_pairs(kind, sources, targets, names, num_vertices, **options)


def dgl(kind: type[AnyGraph], graph: Any, *, ignore: Collection[str]) -> Imported[AnyGraph]:
    """Reads a `dgl.DGLGraph` and its `ndata`, by the part that https://www.dgl.ai/dgl_docs describes."""
    _check_names(ignore)
    if not graph.is_homogeneous:
        raise GraphError(
            "from_dgl takes a homogeneous graph, and this one has several types of nodes or edges: "
            "dgl.to_homogeneous(g), or one type, g.edge_type_subgraph([…])"
        )
    names = ("sources", "targets")
    ends = graph.edges(form="uv", order="eid")
    sources, targets = (as_integers(name, as_array(name, end)) for name, end in zip(names, ends, strict=True))
    given = {name: values for name, values in graph.edata.items() if name not in ignore}
    data = {name: _numbers(f"edata[{name!r}]", name, values) for name, values in given.items()}
    built = from_pairs(kind, sources, targets, names, int(graph.num_nodes()), edge_data=data)
    return Imported(built, {name: values for name, values in graph.ndata.items() if name not in ignore})


def networkx(
    kind: type[AnyGraph], graph: Any, nodes: Sequence[Hashable] | None, *, ignore: Collection[str]
) -> Imported[AnyGraph]:
    """Reads a networkx graph; nodes' attributes become dicts from vertex to value, and nodes other than 0 … V-1 names."""
    _check_names(ignore)
    if nodes is None:
        nodes = list(graph)
        if set(nodes) == set(range(len(nodes))):  # by value: NumPy integers too
            nodes = range(len(nodes))
    number = {node: i for i, node in enumerate(nodes)}
    if len(number) != len(nodes) or number.keys() != set(graph):
        raise GraphError(
            f"nodes must list each of the graph's {len(graph)} nodes once: "
            f"got {len(nodes)}, of which {len(number)} distinct and {len(number.keys() & set(graph))} in the graph"
        )
    edges = list(graph.edges(data=True))
    pairs = np.array([(number[u], number[v]) for u, v, _ in edges], np.int32).reshape(-1, 2)
    data = {}
    for name in dict.fromkeys(name for _, _, attributes in edges for name in attributes if name not in ignore):
        without = next(((u, v) for u, v, attributes in edges if name not in attributes), None)
        if without is not None:
            raise GraphError(
                f"edge {without[0]!r} – {without[1]!r} has no attribute {name!r}, which other edges have: give it one, or "
                f"{_leave(name)}"
            )
        data[name] = _numbers(f"edge attribute {name!r}", name, [attributes[name] for _, _, attributes in edges])
    sources, targets, ids = pairs[:, 0], pairs[:, 1], None
    if not graph.is_directed():
        back = np.flatnonzero(sources != targets)
        sources, targets = np.concatenate([sources, targets[back]]), np.concatenate([targets, pairs[back, 0]])
        data = {name: np.concatenate([values, values[back]]) for name, values in data.items()}
        ids = None if len(back) == len(edges) else np.concatenate([np.arange(len(edges)), len(edges) + back])
    built = from_pairs(kind, sources, targets, ("sources", "targets"), len(nodes), edge_data=data, ids=ids)
    of_nodes: dict[str, Any] = {}
    for node, attributes in graph.nodes(data=True):
        for name, value in attributes.items():
            of_nodes.setdefault(name, {})[number[node]] = value
    return Imported(built, of_nodes, None if isinstance(nodes, range) else stored_names("nodes", list(nodes)))


_ENDS = {"source": ("source", "src", "from", "u"), "target": ("target", "dst", "to", "v")}
"""Usual names of the columns with the ends of edges."""


def dataframe(
    kind: type[AnyGraph],
    edges: Any,
    source: Hashable | None,
    target: Hashable | None,
    num_vertices: int | None,
    *,
    ignore: Collection[Hashable],
    coalesce: bool | Coalesce = False,
) -> AnyGraph:
    """Reads a pandas table of edges; the arguments are those of `Graph.from_dataframe`."""
    _check_names(ignore)
    columns = list(edges.columns)
    source, target = _ends(columns, source, target)
    names = (f"column {source!r}", f"column {target!r}")
    ends = [_complete(name, edges[column]) for name, column in zip(names, (source, target), strict=True)]
    for name, values in zip(names, ends, strict=True):
        if values.dtype.kind not in "iu":
            raise GraphError(
                f"{name} must hold vertices as integers 0 … V-1, got {values.dtype}: number names by pandas.factorize, over "
                "both columns together"
            )
    data = {}
    for name in columns:
        if name in (source, target) or name in ignore:
            continue
        if not isinstance(name, str) or columns.count(name) > 1:
            raise GraphError(
                f"column {name!r} must have a name of its own, a text: rename it, or leave it out with ignore"
            )
        data[name] = _numbers(f"column {name!r}", name, _complete(f"column {name!r}", edges[name]))
    sources, targets = (as_integers(name, values) for name, values in zip(names, ends, strict=True))
    return from_pairs(kind, sources, targets, names, num_vertices, edge_data=data, coalesce=coalesce)


def _ends(columns: list[Hashable], source: Hashable | None, target: Hashable | None) -> tuple[Hashable, Hashable]:
    """Return the columns of sources and targets; None stands for the first usual name that the table has."""

    def column(role: str, name: Hashable | None) -> Hashable:
        usual = next((one for one in _ENDS[role] if one in columns), role)
        found = usual if name is None else name
        if columns.count(found) != 1:
            raise GraphError(
                f"{role}={found!r} must be one column of the table of edges, whose columns are "
                f"{', '.join(map(repr, columns))}: give source=… and target=…"
            )
        return found

    return column("source", source), column("target", target)


def dataframes(
    kind: type[AnyGraph],
    vertices: Any,
    edges: Any,
    *,
    key: Hashable,
    source: Hashable | None,
    target: Hashable | None,
    ignore: Collection[Hashable],
) -> Imported[AnyGraph]:
    """Read pandas tables of vertices and edges; the arguments are those of `Dataset.from_dataframes`.

    Raises a GraphError as `Graph.from_dataframe`; if, without `key`, the index of vertices holds other integers; if
    `key` is no column, or lacks a value, repeats one or holds one with NUL; or if an edge names no vertex.
    """
    _check_names(ignore)
    names = None
    columns = list(vertices.columns)
    repeated = next((name for name in columns if columns.count(name) > 1), None)
    if repeated is not None:
        raise GraphError(f"the table of vertices has two columns {repeated!r}: rename one")
    index = vertices.index
    if key is None and index.dtype.kind in "iu" and not np.array_equal(index, np.arange(len(index))):
        raise GraphError(
            "the index of the table of vertices is not 0 … V-1 in this order, so edges may name vertices by index or by "
            "row: vertices.reset_index() makes it a column for key=…, vertices.reset_index(drop=True) leaves rows"
        )
    if key is not None:
        if key not in columns:
            raise GraphError(
                f"key={key!r} must be a column of the table of vertices, whose columns are {', '.join(map(repr, columns))}"
            )
        vertices = vertices.reset_index(drop=True)
        _complete(f"key={key!r}", vertices[key])
        number: dict[Any, int] = {}
        keys = vertices[key].tolist()
        for row, name in enumerate(keys):
            if number.setdefault(name, row) != row:
                raise GraphError(f"key={key!r} holds {name!r} twice: each vertex needs a key of its own")
        names = stored_names(f"key={key!r}", keys)
        edges = edges.copy(deep=False)
        source, target = _ends(list(edges.columns), source, target)
        for column in (source, target):
            ends = edges[column].tolist()
            unknown = next((row for row, name in enumerate(ends) if name not in number), None)
            if unknown is not None:
                raise GraphError(
                    f"column {column!r} of row {unknown} names {ends[unknown]!r}, which is not a vertex: "
                    f"key={key!r} does not hold it"
                )
            edges[column] = np.array([number[name] for name in ends], np.int64)
    graph = dataframe(kind, edges, source, target, len(vertices), ignore=ignore)
    return Imported(graph, {name: vertices[name] for name in columns if name not in (key, *ignore)}, names)


def scipy_sparse(kind: type[AnyGraph], adjacency: Any, weight: str | None, *, edge_ids: bool) -> AnyGraph:
    """Reads a sparse array or matrix of SciPy; the arguments are those of `Graph.from_scipy`."""
    if len(adjacency.shape) != 2 or adjacency.shape[0] != adjacency.shape[1]:
        raise GraphError(f"adjacency must be square, [V, V], got shape {adjacency.shape}")
    entries = adjacency if adjacency.format in ("csc", "csr") else adjacency.tocoo()
    known: dict[str, Any] = {"edge_data": {} if weight is None else {weight: entries.data}, "edge_ids": edge_ids}
    if entries.format == "csc":  # columns are targets: already rows by destination
        return from_incoming(kind, entries.indptr, entries.indices, **known)
    if entries.format == "csr":
        return from_outgoing(kind, entries.indptr, entries.indices, ("adjacency.indptr", "adjacency.indices"), **known)
    return from_pairs(kind, entries.row, entries.col, ("adjacency.row", "adjacency.col"), entries.shape[0], **known)


class Roles(TypedDict, total=False):
    """The roles of an object's values in a data set, as `Dataset.from_pyg` describes them."""

    features: Any
    labels: Any
    num_classes: int | None
    multilabel: bool | None
    split: int | None
    split_seed: int
    ignore: Collection[Any]


def by_role(
    name: str,
    imported: Imported[AnyGraph],
    *,
    features: Any = None,
    labels: Any = None,
    num_classes: int | None = None,
    multilabel: bool | None = None,
    split: int | None = None,
    split_seed: int = 0,
    ignore: Collection[Hashable] = (),
) -> dict[str, Any]:
    """The arguments of `Dataset` for an imported object, whose values have these `Roles`: masks are those named as `MASKS`.

    Raises a GraphError if a name is unknown, or a value belongs to no vertex or cannot be a further input.
    """
    size = imported.graph.num_vertices
    there = {key: _of_all(key, value, size) for key, value in imported.vertex_data.items() if key not in ignore}
    masks = {key: there[key] for key in MASKS if key in there}
    if features is None:
        features = [key for key in there if key not in (*masks, *names_in(labels))] or None
    used = {*masks, *names_in(features), *names_in(labels)}
    found = named_labels(_taken("labels", labels, there), size, num_classes, multilabel)
    if found.multilabel and len(names_in(labels)) == found.num_classes:
        found = found._replace(class_names=np.array(names_in(labels)))
    return {
        "name": name,
        "graph": imported.graph,
        "features": _taken("features", features, there),
        "labels": found,
        **chosen_masks(name, masks, found.array, split=split, seed=split_seed),
        "vertex_inputs": {key: _further(key, value, size) for key, value in there.items() if key not in used},
        "original_ids": imported.names,
    }


def names_in(given: Any) -> list[str]:
    """Names in the argument for a role; none if it is an array."""
    if isinstance(given, str):
        return [given]
    return list(given) if isinstance(given, (list, tuple)) and given and isinstance(given[0], str) else []


def _taken(role: str, given: Any, there: Mapping[str, Any]) -> Any:
    names = names_in(given)
    if not names:
        return given
    for name in names:
        if name not in there:
            listed = ", ".join(map(repr, sorted(there))) or "none"
            other = "; labels=None stands for none" if role == "labels" else ""
            raise GraphError(
                f"{role}={given!r}: vertices have no value {name!r}, but {listed}; an array will do, too{other}"
            )
    if role == "labels" and len(names) == 1:
        return there[names[0]]
    arrays = [as_array(f"{role} {name!r}", there[name], f"encode it as numbers, or {_leave(name)}") for name in names]
    columns = [array[:, None] if array.ndim == 1 else array for array in arrays]
    return columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)


def _of_all(name: str, values: Any, num_vertices: int) -> Any:
    """Values as one array or list, also from the dict by vertex of a networkx graph."""
    if not isinstance(values, dict):
        return values
    without = next((vertex for vertex in range(num_vertices) if vertex not in values), None)
    if without is not None:
        raise GraphError(f"vertex {without} has no {name!r}, which other vertices have: give it one, or {_leave(name)}")
    return [values[vertex] for vertex in range(num_vertices)]


def _further(name: str, value: Any, num_vertices: int) -> np.ndarray:
    try:
        return checked_inputs("vertex_inputs", {name: value}, num_vertices, "one row per vertex")[name]
    except GraphError as error:
        raise GraphError(f"{error}; or {_leave(name)}") from error


def _check_names(ignore: Collection[Hashable]) -> None:
    """Refuse a single text, which would pass as a collection of letters."""
    if isinstance(ignore, str) or not isinstance(ignore, Iterable):
        raise GraphError(f"ignore must be a list of names, got {ignore!r}")


def _numbers(what: str, name: Hashable, values: Any) -> np.ndarray:
    """Values as real numbers or truth values."""
    try:
        return as_array(what, values)
    except GraphError as error:
        raise GraphError(f"{error}, or {_leave(name)}") from error


def _leave(name: Hashable, *, here: str = "") -> str:
    return f"leave it out{here} with ignore=[{name!r}]"


def _complete(name: str, column: Any) -> np.ndarray:
    """A column of a table as NumPy, without missing values; pandas' own nullable numbers as plain ones."""
    missing = np.flatnonzero(column.isna())
    if missing.size:
        raise GraphError(f"{name} has no value in row {missing[0]} ({missing.size} such rows): fill it or drop the row")
    numpy_dtype = getattr(column.dtype, "numpy_dtype", None)
    values: np.ndarray = column.to_numpy() if numpy_dtype is None else column.to_numpy(dtype=numpy_dtype)
    return values
