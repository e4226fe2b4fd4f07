"""SciPy's sparse arrays and matrices."""

from __future__ import annotations

from typing import Any

from dorylax.graph.build import from_csr, from_outgoing, from_pairs
from dorylax.graph.graph import Graph
from dorylax.graph.validate import GraphError


def from_scipy(adjacency: Any, *, weight: str | None = "weight", edge_ids: bool = True) -> Graph:
    """A graph of a square SciPy sparse array or matrix: each stored entry `(u, v)` is an edge u → v.

    A stored zero is an edge, and duplicates are several edges; `adjacency.eliminate_zeros()` and `sum_duplicates()` before
    make other edges of them. An edge's id is the place of its entry in `.data`; of layouts without such an array (lil, dok,
    dia, bsr) in that of `.tocoo()`.

    Args:
        adjacency: `[V, V]`.
        weight: the name that the values get in `edge_data`; None leaves them out.
        edge_ids: as in `Graph.from_coo`; False leaves the values out, which `weight=None` must say too.

    Raises:
        GraphError: the array is not square, its arrays are inconsistent, or its values are no real numbers.
    """
    if len(adjacency.shape) != 2 or adjacency.shape[0] != adjacency.shape[1]:
        raise GraphError(f"adjacency must be square, [V, V], got shape {adjacency.shape}")

    def data(entries: Any) -> dict[str, Any]:
        return {} if weight is None else {weight: entries.data}

    if adjacency.format == "csc":  # columns are targets: already rows by destination
        return from_csr(adjacency.indptr, adjacency.indices, edge_data=data(adjacency), edge_ids=edge_ids)
    if adjacency.format == "csr":
        names = ("adjacency.indptr", "adjacency.indices")
        return from_outgoing(adjacency.indptr, adjacency.indices, names, edge_data=data(adjacency), edge_ids=edge_ids)
    entries = adjacency.tocoo()
    names = ("adjacency.row", "adjacency.col")
    size = adjacency.shape[0]
    return from_pairs(entries.row, entries.col, names, size, edge_data=data(entries), edge_ids=edge_ids)
