"""Building graphs from other formats. Every function here validates what it is given and raises `GraphError`.

Duplicate edges are kept (a `Graph` is a multigraph) unless `coalesce` is asked for. Vertices are 0 … V-1 everywhere.
The users' names for these functions are the class methods of `Graph`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt
from jaxtyping import Int32, Int64

from dorylax.graph.assemble import assemble
from dorylax.graph.graph import Graph, SelfLoops
from dorylax.graph.npz import Archive, open_npz
from dorylax.graph.rows import all_rows, first_of_equals, offsets_without, spans
from dorylax.graph.transpose import compress, transpose
from dorylax.graph.validate import (
    GraphError,
    as_integers,
    check_num_vertices,
    check_offsets,
    check_range,
)


def from_coo(
    sources: npt.ArrayLike,
    targets: npt.ArrayLike,
    num_vertices: int | None = None,
    *,
    coalesce: bool = False,
    return_edge_order: bool = False,
) -> Graph | tuple[Graph, np.ndarray]:
    """A graph of the edges `sources[k]` → `targets[k]`, in O(V + E).

    Args:
        sources: integers `[E]`.
        targets: integers `[E]`.
        num_vertices: V; None takes one more than the largest id.
        coalesce: drop all but the first of equal edges.
        return_edge_order: also return where each edge came from.

    Returns:
        The graph; with `return_edge_order` the pair `(graph, order)`: the edge with edge id e is number `order[e]` of
        the arguments, integers `[E]`, so that `edge_features[order]` is in edge-id order.

    Raises:
        GraphError: lengths differ, or an id is negative or ≥ num_vertices.
    """
    graph, order = _from_pairs(
        as_integers("sources", sources),
        as_integers("targets", targets),
        ("sources", "targets"),
        num_vertices,
        coalesce=coalesce,
        with_order=return_edge_order,
    )
    return (graph, order) if return_edge_order else graph


def from_csr(
    offsets: npt.ArrayLike,
    sources: npt.ArrayLike,
    *,
    symmetric: bool | None = None,
    self_loops: SelfLoops | None = None,
) -> Graph:
    """A graph of compressed rows by destination: row v, `sources[offsets[v]:offsets[v+1]]`, lists v's in-neighbours.

    Arrays of the right type (int64 and int32) whose rows are sorted are used as they are, memory-mapped ones included;
    nothing is written to them. Otherwise the graph gets a sorted copy.

    Args:
        offsets: integers `[V+1]`.
        sources: integers `[E]`.
        symmetric: whether u → v always comes with v → u. None finds out; a value is trusted, unchecked.
        self_loops: "none", "some" or "all" vertices have an edge to themselves. None finds out; a value is trusted.

    Raises:
        GraphError: offsets that do not start at 0, decrease, or do not end at E; an id negative or ≥ V.
    """
    row_offsets, ids = _valid_rows(
        as_integers("offsets", offsets), as_integers("sources", sources), "offsets", "sources"
    )
    if not _rows_are_sorted(row_offsets, ids):
        row_offsets, ids, _ = compress(ids, all_rows(row_offsets), len(row_offsets) - 1, with_positions=False)
    return assemble(row_offsets, ids, symmetric=symmetric, self_loops=self_loops)


def from_scipy(adjacency: Any) -> Graph:
    """A graph of a square SciPy sparse array or matrix: each stored entry `(u, v)` is an edge u → v.

    Values are not looked at: a stored zero is an edge, and duplicates are several edges. For edge weights in edge-id
    order, pass `m = adjacency.tocoo()` as `from_coo(m.row, m.col, V, return_edge_order=True)` and use `m.data[order]`.

    Raises:
        GraphError: the array is not square, or its arrays are inconsistent.
    """
    if len(adjacency.shape) != 2 or adjacency.shape[0] != adjacency.shape[1]:
        raise GraphError(f"adjacency must be square, [V, V], got shape {adjacency.shape}")
    if adjacency.format == "csc":  # columns are targets: already rows by destination
        return from_csr(adjacency.indptr, adjacency.indices)
    if adjacency.format == "csr":
        return _from_outgoing(adjacency.indptr, adjacency.indices, "adjacency.indptr", "adjacency.indices")
    entries = adjacency.tocoo()
    return _from_pairs(entries.row, entries.col, ("adjacency.row", "adjacency.col"), adjacency.shape[0])[0]


def from_networkx(graph: Any, nodes: Sequence[Hashable] | None = None) -> Graph:
    """A graph of a networkx graph; an undirected edge becomes two directed ones, an undirected loop one.

    Args:
        graph: `networkx.Graph`, `DiGraph`, `MultiGraph` or `MultiDiGraph`; attributes are not looked at.
        nodes: vertex i is `nodes[i]`. None: where the nodes are exactly the integers 0 … V-1 vertex i is node i,
            otherwise it is `list(graph)[i]`.

    Raises:
        GraphError: `nodes` does not list every node exactly once.
    """
    if nodes is None:
        nodes = list(graph)
        if all(type(node) is int for node in nodes) and set(nodes) == set(range(len(nodes))):
            nodes = range(len(nodes))
    number = {node: i for i, node in enumerate(nodes)}
    if len(number) != len(nodes) or number.keys() != set(graph):
        raise GraphError(
            f"nodes must list each of the graph's {len(graph)} nodes once: "
            f"got {len(nodes)}, of which {len(number)} distinct and {len(number.keys() & set(graph))} in the graph"
        )
    pairs = np.array([(number[u], number[v]) for u, v in graph.edges()], np.int32).reshape(-1, 2)
    sources, targets = pairs[:, 0], pairs[:, 1]
    if not graph.is_directed():
        back = pairs[sources != targets]
        sources, targets = np.concatenate([sources, back[:, 1]]), np.concatenate([targets, back[:, 0]])
    return _from_pairs(sources, targets, ("sources", "targets"), len(nodes))[0]


def from_edge_index(
    edge_index: Any,
    num_vertices: int | None = None,
    *,
    coalesce: bool = False,
    return_edge_order: bool = False,
) -> Graph | tuple[Graph, np.ndarray]:
    """A graph of an `edge_index` as PyTorch Geometric keeps it: row 0 holds sources, row 1 targets.

    Args:
        edge_index: integers `[2, E]`, a NumPy array or a torch tensor on any device.
        num_vertices: V (PyG's `num_nodes`); None takes one more than the largest id.
        coalesce: drop all but the first of equal edges.
        return_edge_order: also return where each edge came from, as `from_coo` does.

    Raises:
        GraphError: another shape, or an id negative or ≥ num_vertices.
    """
    if hasattr(edge_index, "detach"):  # a torch tensor; this package does not import torch
        edge_index = edge_index.detach().cpu().numpy()
    pairs = np.asarray(edge_index)
    if pairs.ndim != 2 or len(pairs) != 2:
        raise GraphError(f"edge_index must have shape [2, E], got {list(pairs.shape)}")
    graph, order = _from_pairs(
        as_integers("edge_index[0]", pairs[0]),
        as_integers("edge_index[1]", pairs[1]),
        ("edge_index[0]", "edge_index[1]"),
        num_vertices,
        coalesce=coalesce,
        with_order=return_edge_order,
    )
    return (graph, order) if return_edge_order else graph


def from_npz(path: str | PathLike[str]) -> Graph:
    """The graph in an archive of the layout that `dorylax.graph.npz` describes; features and labels are not read.

    Raises:
        FileNotFoundError: there is no such file.
        GraphError: it is not an npz archive, or lacks `indptr` or `indices`, or they are inconsistent.
    """
    with open_npz(path) as archive:
        return from_archive(archive)


def from_archive(archive: Archive) -> Graph:
    """The graph in an archive that is open already.

    Raises:
        GraphError: it lacks `indptr` or `indices`, or they are inconsistent.
    """
    archive.require("indptr", "indices")
    graph = _stored_graph(archive)
    if "self_loops" in archive and (said := str(archive.fetch("self_loops"))) != graph.self_loops:
        raise GraphError(
            f"self_loops is {said!r}, but it is {graph.self_loops!r} vertices that have an edge to themselves"
        )
    return graph


def _stored_graph(archive: Archive) -> Graph:
    offsets, targets = archive.fetch("indptr"), archive.fetch("indices")
    if "directed" in archive and not archive.fetch("directed"):  # rows by source, then, are rows by target
        graph = from_csr(offsets, targets)
        if not graph.symmetric:
            raise GraphError("directed is false, but there are edges without their reverse")
        return graph
    return _from_outgoing(offsets, targets, "indptr", "indices")


def _from_outgoing(offsets: np.ndarray, targets: np.ndarray, offsets_name: str, targets_name: str) -> Graph:
    """A graph of compressed rows by source."""
    row_offsets, ids = _valid_rows(
        as_integers(offsets_name, offsets), as_integers(targets_name, targets), offsets_name, targets_name
    )
    in_offsets, sources, _ = transpose(row_offsets, ids, len(row_offsets) - 1, with_positions=False)
    return assemble(in_offsets, sources)


def _from_pairs(
    sources: np.ndarray,
    targets: np.ndarray,
    names: tuple[str, str],
    num_vertices: int | None,
    *,
    coalesce: bool = False,
    with_order: bool = False,
) -> tuple[Graph, np.ndarray]:
    """The graph, and the edge order where it is wanted (see `from_coo`)."""
    if len(sources) != len(targets):
        lengths = f"{names[0]} has length {len(sources)} and {names[1]} has length {len(targets)}"
        raise GraphError(f"{lengths}: expected one of each per edge")
    if num_vertices is None:
        num_vertices = 1 + max(int(sources.max()), int(targets.max()), -1) if len(sources) else 0
    check_num_vertices(num_vertices)
    check_range(names[0], sources, num_vertices, "num_vertices")
    check_range(names[1], targets, num_vertices, "num_vertices")
    sources, targets = sources.astype(np.int32, copy=False), targets.astype(np.int32, copy=False)
    offsets, sources, order = compress(sources, targets, num_vertices, with_positions=with_order)
    if coalesce:
        keep = first_of_equals(offsets, sources)
        offsets, sources, order = offsets_without(offsets, np.flatnonzero(~keep)), sources[keep], order[keep]
    return assemble(offsets, sources), order


def _valid_rows(
    offsets: np.ndarray, ids: np.ndarray, offsets_name: str, ids_name: str
) -> tuple[Int64[np.ndarray, " V1"], Int32[np.ndarray, " E"]]:
    check_offsets(offsets_name, offsets, len(ids), ids_name)
    num_vertices = len(offsets) - 1
    check_num_vertices(num_vertices)
    check_range(ids_name, ids, num_vertices, "num_vertices")
    return offsets.astype(np.int64, copy=False), ids.astype(np.int32, copy=False)


def _rows_are_sorted(offsets: Int64[np.ndarray, " V1"], ids: Int32[np.ndarray, " E"]) -> bool:
    for start, stop in spans(len(ids)):
        first = max(start, 1)
        falls = np.flatnonzero(ids[first:stop] < ids[first - 1 : stop - 1]) + first
        if not (offsets[np.searchsorted(offsets, falls)] == falls).all():  # a fall is in order where a row begins
            return False
    return True
