"""The arrays of graphs and data sets on disk: their names, and the functions that read several of them as one.

Arrays:
    indptr: int64 `[V+1]`, indices: int32 `[E]`. Compressed rows by *source*: row u lists the targets of u's out-edges.
        An undirected graph stores both directions.
    edge_<name>: Values of the edges, `[E, …]` in order of `indices`: `Graph.edge_data`; any number of them.
    edge_ids: int32 `[E]`, unique id of each edge in order of `indices`; by default its position there.
    features: `[V, F]`, or compressed rows `features_indptr`, `features_indices`, `features_data`, `features_shape`.
    labels: int `[V]`, -1 for unlabelled vertices, or `[V, C]` of zeros and ones (multi-label); without num_classes
        floating targets `[V]` or `[V, T]`.
    original_ids: `[V]` integers or UTF-8 bytes, names of the vertices, in order of the user's numbers; optional.
    vertex_<name>: `[V, …]`, a further input of the model; any number of them.
    vertex_ids-1: int32 `[V]`, the user's number of the vertex in each row, if rows are in another order than the user's
        (`dorylax reorder`); optional. Neighbors are rows, and arrays of vertices are in order of rows. Without edge_ids
        the ids of edges are 0 … E-1 by (source, target) in the user's numbers; edge_<name> needs edge_ids. The number in
        the name is a version; older readers refuse the name as that of an input.
    train_mask, val_mask, test_mask: bool `[V]`, or `[V, K]` or `[K, V]` for K splits; optional.
Values (in a folder those of the manifest, in an archive arrays without axes), all optional:
    directed: False if every edge comes with its reverse, which saves sorting.
    self_loops: "none", "some" or "all" vertices have an edge to themselves.
    num_classes: C.
    class_names: C names of the classes.
    multilabel: Whether labels `[V, C]` hold any number of classes per vertex.
    name: Name of the data set.
"""

from __future__ import annotations

import numpy as np

from dorylax.graph.features import dense_rows
from dorylax.graph.stored import StoredArrays
from dorylax.graph.validate import GraphError, as_integers, check_permutation
from dorylax.near_matches import close

VERTEX_PREFIX, EDGE_PREFIX = "vertex_", "edge_"
"""Prefixes of further inputs per vertex, and of values per edge."""
EDGE_IDS = "edge_ids"
"""Ids of the edges."""
ORDER = "vertex_ids-1"
"""The user's numbers of the vertices, if rows are in another order."""
_ORDERS = "vertex_ids-"  # of any version
ORIGINAL_IDS = "original_ids"
"""Names of the vertices, in order of the user's numbers whatever the order of rows."""
CLASS_NAMES = "class_names"
"""Names of the classes."""
SINGLE = ("directed", "self_loops", "multilabel", "name")
"""Names of single values."""
SPARSE = ("features_indptr", "features_indices", "features_data", "features_shape")
"""Features in compressed rows."""
MASKS = ("train_mask", "val_mask", "test_mask")
"""Names of the masks."""
_NAMES = (
    *("indptr", "indices", "features", *SPARSE, "labels", "num_classes", *SINGLE, *MASKS),
    *(ORIGINAL_IDS, CLASS_NAMES),
)
_SIMILAR = ("edge_", "num_self_loops")  # prefixes of names that resemble ours and have another meaning


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
