"""PyTorch Geometric: `edge_index` arrays and homogeneous `Data`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from dorylax.graph.arrays import as_array
from dorylax.graph.build import from_pairs
from dorylax.graph.graph import Coalesce, Graph
from dorylax.graph.importers.base import Imported, collection, graph_alone, numbers
from dorylax.graph.validate import GraphError, as_integers


def from_edge_index(
    edge_index: Any,
    num_vertices: int | None = None,
    *,
    edge_attr: Any = None,
    edge_weight: Any = None,
    coalesce: bool | Coalesce = False,
    edge_ids: bool = True,
) -> Graph:
    """A graph of an `edge_index` as PyTorch Geometric keeps it: row 0 holds sources, row 1 targets; column k is edge k.

    Args:
        edge_index: integers `[2, E]`, a NumPy array or a torch tensor on any device.
        num_vertices: V (PyG's `num_nodes`); None takes one more than the largest id.
        edge_attr: features of the edges, `[E, D]` or `[E]`, which become `edge_data["edge_attr"]`.
        edge_weight: `[E]`, which become `edge_data["edge_weight"]`.
        coalesce: as in `Graph.from_coo`.
        edge_ids: as in `Graph.from_coo`.

    Raises:
        GraphError: another shape, an id negative or ≥ num_vertices, or values that are not one per edge.
    """
    named = {"edge_attr": edge_attr, "edge_weight": edge_weight}
    given = {name: values for name, values in named.items() if values is not None}
    return _of_edge_index(edge_index, num_vertices, edge_data=given, coalesce=coalesce, edge_ids=edge_ids)


def from_pyg(data: Any, *, ignore: Collection[str] = ()) -> Graph:
    """A graph of a homogeneous `torch_geometric.data.Data`; what it has per edge becomes `edge_data`, by name.

    Args:
        data: with an `edge_index`.
        ignore: what to leave out: tensors per node (`Dataset.from_pyg` takes those), of the whole graph, or per edge.

    Raises:
        GraphError: there is no `edge_index`, edges have what is no real number, or something else is not ignored.
    """
    return graph_alone(read(data, ignore=ignore), ignore, "data")


def read(data: Any, *, ignore: Collection[str] = ()) -> Imported:
    """The same with what `Data` has per node and as a whole, which nothing is done to; arguments as in `from_pyg`."""
    collection("ignore", ignore)
    if not hasattr(data, "is_edge_attr"):
        raise GraphError(
            f"from_pyg takes a torch_geometric.data.Data, got {type(data).__name__}: a HeteroData has several kinds of "
            "edges (data.to_homogeneous() makes one of them), and Graph.from_edge_index takes one edge_index"
        )
    if getattr(data, "edge_index", None) is None:
        advice = "; it has adj_t: Graph.from_scipy(data.adj_t.t().to_scipy()) takes that" if "adj_t" in data else ""
        raise GraphError(f"data has no edge_index{advice}")
    edges: dict[str, Any] = {}
    vertices: dict[str, Any] = {}
    other: dict[str, Any] = {}
    for name in data.keys() if callable(data.keys) else data.keys:
        if name in ignore or name in ("edge_index", "num_nodes"):
            continue
        if data.is_edge_attr(name):
            remedy = f"leave it out with ignore=[{name!r}]"
            edges[name] = numbers(f"data.{name}", data[name], remedy)
        else:
            (vertices if data.is_node_attr(name) else other)[name] = data[name]
    return Imported(_of_edge_index(data.edge_index, data.num_nodes, edge_data=edges), vertices, other)


def _of_edge_index(edge_index: Any, num_vertices: int | None, **options: Any) -> Graph:
    pairs = as_array("edge_index", edge_index)
    if pairs.ndim != 2 or len(pairs) != 2:
        raise GraphError(f"edge_index must have shape [2, E], got {list(pairs.shape)}")
    names = ("edge_index[0]", "edge_index[1]")
    sources, targets = (as_integers(name, row) for name, row in zip(names, pairs, strict=True))
    return from_pairs(sources, targets, names, num_vertices, **options)
