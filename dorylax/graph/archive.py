"""Graphs in archives: what `dorylax.graph.npz` describes, read and written."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import get_args

import numpy as np

from dorylax.graph.build import from_outgoing, from_pairs
from dorylax.graph.compressed import AnyGraph, CompressedGraph, SelfLoops
from dorylax.graph.npz import ORDER, Archive, read_order, write_npz
from dorylax.graph.reorder import reorder, user_order
from dorylax.graph.rows import all_rows
from dorylax.graph.transpose import MAX_EDGE_IDS
from dorylax.graph.validate import GraphError, as_integers, check_length, check_offsets, check_range

_PREFIX = "edge_"
_IDS = "edge_ids"


def save_npz(graph: CompressedGraph, path: str | PathLike[str]) -> None:
    """Writes the archive that `from_npz` reads, in the user's vertex order, and all of it or nothing.

    Raises:
        OSError: the file cannot be written.
    """
    write_npz(path, graph_arrays(graph))


def from_archive(kind: type[AnyGraph], archive: Archive) -> AnyGraph:
    """The graph in an archive that is open already, with the edges' ids and values where there are any.

    Raises:
        GraphError: it lacks `indptr` or `indices`, or arrays are inconsistent.
    """
    archive.require("indptr", "indices")
    offsets, targets = archive.fetch("indptr"), archive.fetch("indices")
    data = {name: archive.fetch(stored) for name, stored in edge_names(archive).items()}
    for name, values in data.items():
        check_length(f"{_PREFIX}{name}", values, len(targets), "one per entry of indices")
    undirected = "directed" in archive and not archive.fetch("directed")
    order = read_order(archive, len(as_integers("indptr", offsets)) - 1)
    if _IDS in archive:
        graph = _with_ids(kind, (offsets, targets), archive.fetch(_IDS), data, order)
        if undirected and not graph.symmetric:
            raise GraphError("directed is false, but there are edges without their reverse")
    else:
        symmetric = True if undirected else None
        told = (
            _said_of_loops(archive)
            if undirected and archive.is_verified("indptr", "indices", "directed", "self_loops")
            else None
        )
        graph = from_outgoing(
            kind, offsets, targets, ("indptr", "indices"), edge_data=data, symmetric=symmetric, self_loops=told
        )
        if order is not None:
            graph = _in_order(graph, order)
    if "self_loops" in archive and (said := str(archive.fetch("self_loops"))) != graph.self_loops:
        raise GraphError(
            f"self_loops is {said!r}, but it is {graph.self_loops!r} vertices that have an edge to themselves"
        )
    return graph


def edge_names(archive: Archive) -> dict[str, str]:
    """Of values of edges: their name → that of the array that holds them."""
    stored = (name for name in archive.names if name.startswith(_PREFIX) and name != _IDS)
    return {name.removeprefix(_PREFIX): name for name in stored}


def graph_arrays(graph: CompressedGraph, edge_data: Mapping[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
    """The arrays of an archive that are about the graph, in the user's vertex order.

    Args:
        graph: the graph.
        edge_data: values of its edges in order of their ids; by default those that it has.

    Raises:
        GraphError: values of edges are called "ids".
    """
    restore = user_order(graph)
    graph = graph if restore is None else reorder(graph, restore)
    rows = graph.incoming if graph.symmetric else graph.outgoing
    arrays = {
        "indptr": rows.offsets,
        "indices": rows.neighbours,
        "directed": np.array(not graph.symmetric),
        "self_loops": np.array(graph.self_loops),
    }
    if not graph.edge_ids_fit:
        return arrays
    data = graph.edge_data if edge_data is None else edge_data
    if "ids" in data:
        raise GraphError(
            "edge_data['ids'] cannot be saved, because edge_ids in an archive are the edges' ids: rename it"
        )
    places = None
    if not graph.by_source:
        places = graph.outgoing.edges if graph.edge_order is None else graph.edge_order[graph.outgoing.edges]
        if np.array_equal(places, np.arange(graph.num_edges)):  # by target, and so by source
            places = None
    if places is not None or graph.edge_ids is not None:
        ids = np.arange(graph.num_edges, dtype=np.int32) if graph.edge_ids is None else graph.edge_ids
        arrays[_IDS] = ids if places is None else ids[places]
    return arrays | {f"{_PREFIX}{name}": values if places is None else values[places] for name, values in data.items()}


def _said_of_loops(archive: Archive) -> SelfLoops | None:
    """What an archive says of edges from a vertex to itself; None where it does not."""
    said = str(archive.fetch("self_loops")) if "self_loops" in archive else ""
    return next((known for known in get_args(SelfLoops) if known == said), None)


def _in_order(graph: AnyGraph, order: np.ndarray) -> AnyGraph:
    """A graph of rows whose vertices have the ids `order`, and whose edges are numbered by (source, target) in these."""
    if graph.edge_data:
        raise GraphError(
            f"has {ORDER} and values of edges, and no {_IDS} that say whose they are: write it again (dorylax reorder)"
        )
    return type(graph)(
        graph.incoming.offsets,
        graph.incoming.neighbours,
        symmetric=graph.symmetric,
        self_loops=graph.self_loops,
        vertex_ids=order,
        placed="source",
    )


def _with_ids(
    kind: type[AnyGraph],
    rows: tuple[np.ndarray, np.ndarray],
    ids: np.ndarray,
    data: dict[str, np.ndarray],
    order: np.ndarray | None,
) -> AnyGraph:
    """A graph of rows by source, whose edges have ids of their own; `order` has those of the vertices."""
    offsets, targets = rows
    check_offsets("indptr", as_integers("indptr", offsets), len(as_integers("indices", targets)), "indices")
    check_length(_IDS, as_integers(_IDS, ids), len(targets), "one per entry of indices")
    check_range(_IDS, ids, MAX_EDGE_IDS, "the largest number of edges with ids")
    by_id = np.argsort(ids, kind="stable")
    ids = ids[by_id]
    repeated = np.flatnonzero(ids[1:] == ids[:-1])
    if repeated.size:
        raise GraphError(f"{_IDS} holds {ids[repeated[0]]} twice: each edge needs an id of its own")
    ends = all_rows(offsets), targets
    if order is not None:
        check_range("indices", targets, len(offsets) - 1, "num_vertices")
        ends = order[ends[0]], order[targets]
    graph = from_pairs(
        kind,
        ends[0][by_id],
        ends[1][by_id],
        ("indptr", "indices"),
        len(offsets) - 1,
        edge_data={name: values[by_id] for name, values in data.items()},
        ids=None if len(ids) == 0 or ids[-1] == len(ids) - 1 else ids,
    )
    return graph if order is None else reorder(graph, order)
