"""Graphs on disk: the arrays that `dorylax.graph.array_names` describes, read and written."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, get_args

import numpy as np

from dorylax.graph.array_folder import FolderWriter, write_arrays
from dorylax.graph.array_names import (
    CLASS_NAMES,
    EDGE_IDS,
    EDGE_PREFIX,
    MASKS,
    ORDER,
    ORIGINAL_IDS,
    SINGLE,
    SPARSE,
    VERTEX_PREFIX,
)
from dorylax.graph.build import from_outgoing, from_pairs
from dorylax.graph.compressed import AnyGraph, CompressedGraph, SelfLoops, numbered_by_source
from dorylax.graph.features import dense_rows
from dorylax.graph.reorder import reorder, user_order
from dorylax.graph.rows import MAX_EDGE_IDS, all_rows
from dorylax.graph.stored import StoredArrays
from dorylax.graph.validate import (
    GraphError,
    as_integers,
    check_length,
    check_offsets,
    check_permutation,
    check_range,
)
from dorylax.near_matches import close

_ORDERS = "vertex_ids-"  # of any version
_NAMES = (
    *("indptr", "indices", "features", *SPARSE, "labels", "num_classes", *SINGLE, *MASKS),
    *(ORIGINAL_IDS, CLASS_NAMES),
)
_SIMILAR = ("edge_", "num_self_loops")  # prefixes of names that resemble ours and have another meaning


def save(graph: CompressedGraph, path: str | PathLike[str]) -> None:
    """Write the folder that `from_folder` reads, in the user's vertex order.

    Args:
        graph: The graph.
        path: Path of the folder; a folder that dorylax wrote is replaced.

    Raises:
        GraphError: There is something else at the path.
        OSError: The folder cannot be written.
    """
    save_arrays(path, graph_arrays(graph))


def save_arrays(path: str | PathLike[str], arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays and values as a folder. Raises as `save`."""

    def fill(folder: FolderWriter) -> None:
        for name, array in arrays.items():
            folder.add(name, np.asarray(array))

    write_arrays(Path(path), fill)


def from_stored(kind: type[AnyGraph], stored: StoredArrays) -> AnyGraph:
    """Return the graph in an open folder or archive, with ids and values of its edges.

    Raises a GraphError if `indptr` or `indices` is missing, or arrays are inconsistent.
    """
    stored.require("indptr", "indices")
    offsets, targets = stored.fetch("indptr"), stored.fetch("indices")
    data = {name: stored.fetch(array) for name, array in edge_names(stored).items()}
    for name, values in data.items():
        check_length(f"{EDGE_PREFIX}{name}", values, len(targets), "one per entry of indices")
    undirected = "directed" in stored and not stored.fetch("directed")
    order = read_order(stored, len(as_integers("indptr", offsets)) - 1)
    if EDGE_IDS in stored:
        graph = _with_ids(kind, (offsets, targets), stored.fetch(EDGE_IDS), data, order)
        if undirected and not graph.symmetric:
            raise GraphError("directed is false, but there are edges without their reverse")
    else:
        known: dict[str, Any] = {"symmetric": True if undirected else None}
        if undirected and stored.is_verified and "self_loops" in stored:
            loops = str(stored.fetch("self_loops"))
            known["self_loops"] = loops if loops in get_args(SelfLoops) else None
        graph = from_outgoing(kind, offsets, targets, ("indptr", "indices"), edge_data=data, **known)
        if order is not None:
            if data:
                raise GraphError(
                    f"has {ORDER} and values of edges, and no {EDGE_IDS} that say whose they are: write it again "
                    "(dorylax reorder)"
                )
            graph = numbered_by_source(graph, order)
    if "self_loops" in stored and (said := str(stored.fetch("self_loops"))) != graph.self_loops:
        raise GraphError(
            f"self_loops is {said!r}, but it is {graph.self_loops!r} vertices that have an edge to themselves"
        )
    return graph


def feature_names(arrays: StoredArrays) -> tuple[str, ...]:
    """Return the names of the arrays that hold the features: one, or those of compressed rows."""
    return SPARSE if any(name in arrays for name in SPARSE) else ("features",)


def read_features(arrays: StoredArrays) -> np.ndarray:
    """Return the features `[V, F]`; compressed ones become dense float32.

    Raises a GraphError if they are stored twice, incomplete, or damaged.
    """
    if feature_names(arrays) != SPARSE:
        return arrays.fetch("features")
    if "features" in arrays:
        raise GraphError("has features and, in compressed rows, features_data: leave out one of them")
    arrays.require(*SPARSE)
    indptr, indices, data, shape = (arrays.fetch(name) for name in SPARSE)
    return dense_rows(indptr, indices, data, shape)


def check_names(arrays: StoredArrays) -> None:
    """Raise a GraphError for an array with nearly the name of a known one, because it would be ignored."""
    for name in arrays.names:
        meant = close(name, _NAMES, cutoff=0.75)
        if name not in _NAMES and meant and not name.startswith((VERTEX_PREFIX, *_SIMILAR)):
            raise GraphError(f"has an array {name}, which is not read: name it {meant[0]}, or leave it out")


def vertex_names(arrays: StoredArrays) -> dict[str, str]:
    """Return the arrays of further inputs per vertex by the names of the inputs."""
    names = (name for name in arrays.names if name.startswith(VERTEX_PREFIX) and not name.startswith(_ORDERS))
    return {name.removeprefix(VERTEX_PREFIX): name for name in names}


def edge_names(arrays: StoredArrays) -> dict[str, str]:
    """Return the arrays of values of edges by the names of the values."""
    stored = (name for name in arrays.names if name.startswith(EDGE_PREFIX) and name != EDGE_IDS)
    return {name.removeprefix(EDGE_PREFIX): name for name in stored}


def read_order(arrays: StoredArrays, num_vertices: int) -> np.ndarray | None:
    """Return the user's number of the vertex in each row, int32 `[V]`; None if rows are in the user's order.

    Raises a GraphError if they are no permutation, or of an unknown version.
    """
    others = [name for name in arrays.names if name.startswith(_ORDERS) and name != ORDER]
    if others:
        raise GraphError(
            f"is in a memory order of another version ({others[0]}), this dorylax reads {ORDER}: update it"
        )
    if ORDER not in arrays:
        return None
    ids = as_integers(ORDER, arrays.fetch(ORDER))
    check_permutation(ORDER, ids, num_vertices)
    return ids.astype(np.int32, copy=False)


def graph_arrays(graph: CompressedGraph, edge_data: Mapping[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
    """Return the arrays and values on disk that describe a graph, in the user's vertex order.

    `edge_data` holds values in order of edge ids; by default those of the graph. Raises a GraphError if one is called
    "ids".
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
            "edge_data['ids'] cannot be saved, because the array edge_ids holds the ids of the edges: rename it"
        )
    places = None
    if not graph.by_source:
        places = graph.outgoing.edges if graph.edge_order is None else graph.edge_order[graph.outgoing.edges]
        if np.array_equal(places, np.arange(graph.num_edges)):  # by target, and so by source
            places = None
    if places is not None or graph.edge_ids is not None:
        ids = np.arange(graph.num_edges, dtype=np.int32) if graph.edge_ids is None else graph.edge_ids
        arrays[EDGE_IDS] = ids if places is None else ids[places]
    return arrays | {
        f"{EDGE_PREFIX}{name}": values if places is None else values[places] for name, values in data.items()
    }


def _with_ids(
    kind: type[AnyGraph],
    rows: tuple[np.ndarray, np.ndarray],
    ids: np.ndarray,
    data: dict[str, np.ndarray],
    order: np.ndarray | None,
) -> AnyGraph:
    """A graph of rows by source and given edge ids; `order` holds the ids of the vertices."""
    offsets, targets = rows
    check_offsets("indptr", as_integers("indptr", offsets), len(as_integers("indices", targets)), "indices")
    check_length(EDGE_IDS, as_integers(EDGE_IDS, ids), len(targets), "one per entry of indices")
    check_range(EDGE_IDS, ids, MAX_EDGE_IDS, "the largest number of edges with ids")
    by_id = np.argsort(ids, kind="stable")
    ids = ids[by_id]
    repeated = np.flatnonzero(ids[1:] == ids[:-1])
    if repeated.size:
        raise GraphError(f"{EDGE_IDS} holds {ids[repeated[0]]} twice: each edge needs an id of its own")
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
