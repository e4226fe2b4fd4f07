"""DGL graphs, by the part of `dgl.DGLGraph` that its documentation describes (https://www.dgl.ai/dgl_docs)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from dorylax.graph.arrays import as_array
from dorylax.graph.build import from_pairs
from dorylax.graph.compressed import AnyGraph
from dorylax.graph.importers.base import Imported, collection, numbers
from dorylax.graph.validate import GraphError, as_integers


def read(kind: type[AnyGraph], graph: Any, *, ignore: Collection[str]) -> Imported[AnyGraph]:
    """Reads a DGL graph into one of class `kind`, and its `ndata`. The other arguments are those of `Graph.from_dgl`."""
    collection("ignore", ignore)
    if not graph.is_homogeneous:
        raise GraphError(
            "from_dgl takes a homogeneous graph, and this one has several types of nodes or edges: "
            "dgl.to_homogeneous(g), or one type, g.edge_type_subgraph([…])"
        )
    names = ("sources", "targets")
    ends = graph.edges(form="uv", order="eid")
    sources, targets = (as_integers(name, as_array(name, end)) for name, end in zip(names, ends, strict=True))
    data = {
        name: numbers(f"edata[{name!r}]", values, f"leave it out with ignore=[{name!r}]")
        for name, values in graph.edata.items()
        if name not in ignore
    }
    built = from_pairs(kind, sources, targets, names, int(graph.num_nodes()), edge_data=data)
    return Imported(built, {name: values for name, values in graph.ndata.items() if name not in ignore}, {})
