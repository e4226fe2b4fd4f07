"""The shape of a data set that a configuration names, without loading or generating it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dorylax.config.schema import DataConfig
from dorylax.graph.array_names import EDGE_IDS, MASKS, ORDER
from dorylax.graph.data_shape import DataShape, InputShape, Size
from dorylax.graph.datasets import communities
from dorylax.graph.datasets.published import PUBLISHED
from dorylax.graph.datasets.registry import is_cached, stored_path
from dorylax.graph.features import held_dtype
from dorylax.graph.graph_arrays import edge_names, feature_names, vertex_names
from dorylax.graph.labels import Labels, checked_num_classes, named_labels, stored_labels
from dorylax.graph.splits import one_split
from dorylax.graph.stored import StoredArrays, open_arrays
from dorylax.graph.validate import GraphError


def shape_of(config: DataConfig) -> DataShape | None:
    """Return the sizes of the data set that the `data` section names, without its data.

    Only shapes, single values and the training mask are read from disk, and labels if the number of classes is not stored.
    A graph counts as directed and with self-loops unless the stored values say otherwise: that takes more memory.

    Returns:
        The shape; None if there is no such data set, or it is invalid (loading it gives the reason).

    Raises:
        GraphError: A folder or archive is damaged, or lacks arrays.
        DatasetError: `$DORYLAX_DATA` names no directory.
        OSError: The data set cannot be opened.
    """
    if config.name == communities.NAME:
        size = communities.SIZES.get(communities.DEFAULT_SIZE if config.size is None else config.size)
        if size is None:
            return None
        return _of_size(size, self_loops="none", origin="generated", features_in="aligned", graph_in="aligned")
    if (file := stored_path(config.name)) is not None:
        try:
            return _stored_shape(file, config.split, verify=config.verify)
        except GraphError:
            if not is_cached(file):
                raise
    if config.name in PUBLISHED:
        return _of_size(PUBLISHED[config.name].size, origin="published")
    return None


def _of_size(size: Size, **more: Any) -> DataShape:
    return DataShape(size.num_vertices, size.num_edges, size.num_features, size.num_classes, **more)


def _stored_shape(path: Path, split: int | None, *, verify: bool) -> DataShape | None:
    """Return the sizes of a folder or archive by its shapes; None if an array has another form than the layout says."""
    with open_arrays(path, verify=verify) as stored:
        names = feature_names(stored)
        stored.require("indptr", "indices", *names)
        sparse = names != ("features",)
        offsets, (edges, index) = stored.header("indptr")[0], stored.header("indices")
        rows = stored.fetch("features_shape") if sparse else np.array(stored.header("features")[0])
        pair = rows.shape == (2,) and rows.dtype.kind in "iu" and rows[1] > 0
        if len(offsets) != 1 or offsets[0] < 1 or len(edges) != 1 or not pair:
            return None
        num_vertices, num_edges = offsets[0] - 1, edges[0]
        labels = _labels(stored, num_vertices)
        symmetric = "directed" in stored and not stored.fetch("directed")
        loops = str(stored.fetch("self_loops")) if "self_loops" in stored else ""
        float32 = not sparse and stored.header("features")[1] == np.float32
        # Rows by source serve as rows by target if the values on disk say so; otherwise they are sorted, and others.
        own_ids = EDGE_IDS in stored
        as_stored = symmetric and index == np.int32 and not own_ids
        # Forms that loading converts: features in compressed rows or of another type, wide indices.
        converted = [] if float32 else [name for name in names if name != "features_shape"]
        return DataShape(
            num_vertices,
            num_edges,
            int(rows[1]),
            labels.num_classes,
            symmetric=symmetric,
            self_loops="none" if loops == "none" else "all" if loops == "all" else "some",
            reordered=ORDER in stored,
            own_edge_order=own_ids,
            multilabel=labels.multilabel,
            targets=labels.array.shape[1:] if labels.num_classes is None else (),
            further=(
                *_further(stored, "vertex", vertex_names(stored)),
                *_further(stored, "edge", edge_names(stored)),
            ),
            features_in="mapped" if float32 and stored.maps("features") else "elsewhere",
            graph_in="mapped" if as_stored and stored.maps("indices") else "elsewhere",
            num_labelled=_num_labelled(stored, num_vertices, split),
            stored_bytes=sum(_size(*stored.header(name)) for name in converted)
            + max(0, index.itemsize - 4) * num_edges,
        )


def _labels(stored: StoredArrays, num_vertices: int) -> Labels:
    """The labels; classes whose number is stored, and missing labels, are not read."""
    if "labels" not in stored:
        return named_labels(None, 0, stored.fetch("num_classes") if "num_classes" in stored else None)
    shape, dtype = stored.header("labels")
    if len(shape) == 1 and dtype.kind in "iu" and "num_classes" in stored:
        return Labels(np.zeros(0, np.int32), checked_num_classes(stored.fetch("num_classes")), multilabel=False)
    return stored_labels(stored, num_vertices)


def _num_labelled(stored: StoredArrays, num_vertices: int, split: int | None) -> int | None:
    """Number of vertices that train; None if there is no mask."""
    if "labels" not in stored:
        return 0
    masks = one_split({name: stored.fetch(name) for name in MASKS if name in stored}, num_vertices, split)
    return int(np.count_nonzero(masks[MASKS[0]])) if MASKS[0] in masks else None


def _further(stored: StoredArrays, space: Literal["vertex", "edge"], names: Mapping[str, str]) -> Iterator[InputShape]:
    for name, array in names.items():
        shape, dtype = stored.header(array)
        yield InputShape(name, space, shape[1:], held_dtype(dtype).name)


def _size(shape: tuple[int, ...], dtype: np.dtype) -> int:
    return math.prod(shape) * dtype.itemsize
