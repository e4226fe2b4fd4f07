"""SciPy's sparse arrays and matrices."""

from __future__ import annotations

from typing import Any

from dorylax.graph.build import from_incoming, from_outgoing, from_pairs
from dorylax.graph.compressed import AnyGraph
from dorylax.graph.validate import GraphError


def read(kind: type[AnyGraph], adjacency: Any, weight: str | None, *, edge_ids: bool) -> AnyGraph:
    """Reads a sparse matrix into a graph of class `kind`. The other arguments are those of `Graph.from_scipy`."""
    if len(adjacency.shape) != 2 or adjacency.shape[0] != adjacency.shape[1]:
        raise GraphError(f"adjacency must be square, [V, V], got shape {adjacency.shape}")

    def data(entries: Any) -> dict[str, Any]:
        return {} if weight is None else {weight: entries.data}

    if adjacency.format == "csc":  # columns are targets: already rows by destination
        return from_incoming(kind, adjacency.indptr, adjacency.indices, edge_data=data(adjacency), edge_ids=edge_ids)
    if adjacency.format == "csr":
        names = ("adjacency.indptr", "adjacency.indices")
        return from_outgoing(
            kind, adjacency.indptr, adjacency.indices, names, edge_data=data(adjacency), edge_ids=edge_ids
        )
    entries = adjacency.tocoo()
    names = ("adjacency.row", "adjacency.col")
    size = adjacency.shape[0]
    return from_pairs(kind, entries.row, entries.col, names, size, edge_data=data(entries), edge_ids=edge_ids)
