"""The names of the arrays of graphs and data sets on disk, with their contents.

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

VERTEX_PREFIX, EDGE_PREFIX = "vertex_", "edge_"
"""Prefixes of further inputs per vertex, and of values per edge."""
EDGE_IDS = "edge_ids"
"""Ids of the edges."""
ORDER = "vertex_ids-1"
"""The user's numbers of the vertices, if rows are in another order."""
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
