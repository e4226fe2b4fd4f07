"""PyTorch Geometric: `edge_index` arrays and homogeneous `Data`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from dorylax.graph.arrays import as_array
from dorylax.graph.build import from_pairs
from dorylax.graph.compressed import AnyGraph
from dorylax.graph.importers.base import Imported, collection, numbers
from dorylax.graph.validate import GraphError, as_integers


def read(kind: type[AnyGraph], data: Any, *, ignore: Collection[str]) -> Imported[AnyGraph]:
    """Reads a PyG graph into one of class `kind`. The other arguments are those of `Graph.from_pyg`.

    Also returns, unchanged, what `Data` holds per node and for the whole graph.
    """
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
    return Imported(read_edge_index(kind, data.edge_index, data.num_nodes, edge_data=edges), vertices, other)


def read_edge_index(kind: type[AnyGraph], edge_index: Any, num_vertices: int | None, **options: Any) -> AnyGraph:
    """The graph of class `kind` of an `edge_index`; options as in `from_pairs`."""
    pairs = as_array("edge_index", edge_index)
    if pairs.ndim != 2 or len(pairs) != 2:
        raise GraphError(f"edge_index must have shape [2, E], got {list(pairs.shape)}")
    names = ("edge_index[0]", "edge_index[1]")
    sources, targets = (as_integers(name, row) for name, row in zip(names, pairs, strict=True))
    return from_pairs(kind, sources, targets, names, num_vertices, **options)
