"""PyTorch Geometric: `edge_index` arrays and homogeneous `Data`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from dorylax.graph.array_names import MASKS
from dorylax.graph.arrays import as_array
from dorylax.graph.build import from_pairs
from dorylax.graph.compressed import AnyGraph
from dorylax.graph.importers.base import Imported, collection, numbers
from dorylax.graph.validate import GraphError, as_integers

_OF_NODES = ("x", "y", "pos", "batch", *MASKS)  # by PyG's conventions


def read(
    kind: type[AnyGraph], data: Any, *, ignore: Collection[str], per_node: Collection[str] = ()
) -> Imported[AnyGraph]:
    """Reads a PyG graph, with its values per node and of the whole graph unchanged.

    Args:
        kind: Class of the graph.
        data: As for `Graph.from_pyg`.
        ignore: As for `Graph.from_pyg`.
        per_node: Names of values per node, in addition to PyG's own.

    Raises:
        GraphError: As `Graph.from_pyg`, or V = E and a name does not say whether its values are per node or per edge.
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
    V, E = data.num_nodes, np.shape(data.edge_index)[-1]
    edges: dict[str, Any] = {}
    vertices: dict[str, Any] = {}
    other: dict[str, Any] = {}
    for name in data.keys() if callable(data.keys) else data.keys:
        if name in ignore or name in ("edge_index", "num_nodes"):
            continue
        value, remedy = data[name], f"leave it out with ignore=[{name!r}]"
        # PyG's is_node_attr decides by length and, where V = E, by whether the name contains "edge"
        rows = len(value) if isinstance(value, list | tuple) else (*getattr(value, "shape", ()), None)[0]
        of_nodes = name in _OF_NODES or name in per_node or name.startswith("node_")
        of_edges = name.startswith("edge_") and not of_nodes
        if rows == V == E and not of_nodes and not of_edges:
            raise GraphError(
                f"data.{name} has {V} rows, one per node or one per edge, as the graph has {V} of each: call it "
                f"node_{name} or edge_{name}, or {remedy}"
            )
        if rows == E and not (rows == V and of_nodes):
            edges[name] = numbers(f"data.{name}", value, remedy)
        else:
            (vertices if rows == V else other)[name] = value
    return Imported(read_edge_index(kind, data.edge_index, V, edge_data=edges), vertices, other)


def read_edge_index(kind: type[AnyGraph], edge_index: Any, num_vertices: int | None, **options: Any) -> AnyGraph:
    """The graph of class `kind` of an `edge_index`; options as in `from_pairs`."""
    pairs = as_array("edge_index", edge_index)
    if pairs.ndim != 2 or len(pairs) != 2:
        raise GraphError(f"edge_index must have shape [2, E], got {list(pairs.shape)}")
    names = ("edge_index[0]", "edge_index[1]")
    sources, targets = (as_integers(name, row) for name, row in zip(names, pairs, strict=True))
    return from_pairs(kind, sources, targets, names, num_vertices, **options)
