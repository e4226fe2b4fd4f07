"""The shape of a data set that a configuration names, without loading or generating it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import numpy as np

from dorylax.config.schema import DataConfig
from dorylax.graph.archive import edge_names
from dorylax.graph.compressed import SelfLoops
from dorylax.graph.data_shape import DataShape, InputShape
from dorylax.graph.datasets import communities
from dorylax.graph.datasets.registry import PUBLISHED, archive_of, is_kept
from dorylax.graph.inputs import held_dtype
from dorylax.graph.labels import Labels, checked_num_classes, named_labels, stored_labels
from dorylax.graph.npz import MASKS, ORDER, Archive, feature_names, open_npz, vertex_names
from dorylax.graph.splits import one_split
from dorylax.graph.validate import GraphError


def shape_of(config: DataConfig) -> DataShape | None:
    """The sizes of the data set that the `data` section names.

    Of an archive only headers are read, single numbers, and which vertices train; its labels where it does not say how many
    classes there are. An archive that does not say whether its graph is directed, or has self-loops, is taken for one that
    is and has some: that takes more.

    Returns:
        The shape; None where there is no such data set, or it is none (loading it says why).

    Raises:
        GraphError: an archive that is none, or lacks arrays.
        DatasetError: `$DORYLAX_DATA` names no directory.
        OSError: an archive cannot be opened.
    """
    if config.name == communities.NAME:
        size = communities.SIZES.get(communities.DEFAULT_SIZE if config.size is None else config.size)
        if size is None:
            return None
        return DataShape(
            size.num_vertices,
            size.num_edges,
            size.num_features,
            size.num_classes,
            self_loops="none",
            origin="generated",
            features_in="aligned",
            graph_in="aligned",
        )
    if (file := archive_of(config.name)) is not None:
        try:
            return archive_shape(file, split=config.split, verify=config.verify)
        except GraphError:
            if not is_kept(file):
                raise
    if config.name in PUBLISHED:
        size = PUBLISHED[config.name].size
        return DataShape(size.num_vertices, size.num_edges, size.num_features, size.num_classes, origin="published")
    return None


def archive_shape(path: Path, *, split: int | None = None, verify: bool = True) -> DataShape | None:
    """The sizes of the data set in an archive, by its headers; without labels nothing trains.

    Args:
        path: The archive.
        split: Which of several splits.
        verify: Whether to compare labels and masks with their checksums.

    Returns:
        The shape; None where an array has another form than the layout says (loading it says which).

    Raises:
        GraphError: it is not an npz archive, lacks `indptr`, `indices` or features, or its labels or masks are none.
        OSError: it cannot be opened.
    """
    with open_npz(path, verify=verify) as archive:
        names = feature_names(archive)
        archive.require("indptr", "indices", *names)
        sparse = names != ("features",)
        offsets, edges = archive.header("indptr")[0], archive.header("indices")
        width = _width(archive, sparse=sparse)
        (num_edges,), index = edges if len(edges[0]) == 1 else ((-1,), edges[1])
        if len(offsets) != 1 or offsets[0] < 1 or num_edges < 0 or width is None:
            return None
        num_vertices = offsets[0] - 1
        labels = _labels(archive, num_vertices)
        symmetric = "directed" in archive and not archive.fetch("directed")
        float32 = not sparse and archive.header("features")[1] == np.float32
        # Rows by source serve as rows by target where the archive says so; otherwise they are sorted, and others.
        own_ids = "edge_ids" in archive
        as_stored = symmetric and index == np.int32 and not own_ids
        return DataShape(
            num_vertices,
            num_edges,
            width,
            labels.num_classes,
            symmetric=symmetric,
            self_loops=_self_loops(archive),
            reordered=ORDER in archive,
            own_edge_order=own_ids,
            multilabel=labels.multilabel,
            targets=labels.array.shape[1:] if labels.num_classes is None else (),
            further=(
                *_further(archive, "vertex", vertex_names(archive)),
                *_further(archive, "edge", edge_names(archive)),
            ),
            features_in="mapped" if float32 and archive.maps("features") else "elsewhere",
            graph_in="mapped" if as_stored and archive.maps("indices") else "elsewhere",
            num_labelled=_num_labelled(archive, num_vertices, split),
            stored_bytes=_stored(archive, sparse=sparse) + max(0, index.itemsize - 4) * num_edges,
        )


def _width(archive: Archive, *, sparse: bool) -> int | None:
    """F; None where that is not what the features' form says."""
    shape = archive.fetch("features_shape") if sparse else np.array(archive.header("features")[0])
    return int(shape[1]) if shape.shape == (2,) and shape.dtype.kind in "iu" and shape[1] > 0 else None


def _labels(archive: Archive, num_vertices: int) -> Labels:
    """What the labels are; by their header alone where they are classes and it is said how many, or are missing."""
    if "labels" not in archive:
        return named_labels(None, 0, archive.fetch("num_classes") if "num_classes" in archive else None)
    shape, dtype = archive.header("labels")
    if len(shape) == 1 and dtype.kind in "iu" and "num_classes" in archive:
        return Labels(np.zeros(0, np.int32), checked_num_classes(archive.fetch("num_classes")), multilabel=False)
    return stored_labels(archive, num_vertices)


def _num_labelled(archive: Archive, num_vertices: int, split: int | None) -> int | None:
    """How many vertices train; None where the archive does not say."""
    if "labels" not in archive:
        return 0
    masks = one_split({name: archive.fetch(name) for name in MASKS if name in archive}, num_vertices, split)
    return int(np.count_nonzero(masks[MASKS[0]])) if MASKS[0] in masks else None


def _further(archive: Archive, space: Literal["vertex", "edge"], names: Mapping[str, str]) -> Iterator[InputShape]:
    for name, stored in names.items():
        shape, dtype = archive.header(stored)
        yield InputShape(name, space, shape[1:], held_dtype(dtype).name)


def _self_loops(archive: Archive) -> SelfLoops:
    """As the archive says; what takes most where it does not, or says what loading it will refuse."""
    said = str(archive.fetch("self_loops")) if "self_loops" in archive else "some"
    return "none" if said == "none" else "all" if said == "all" else "some"


def _stored(archive: Archive, *, sparse: bool) -> int:
    """Bytes of features in a form that is converted: compressed rows, or another type than float32."""
    if sparse:
        names = ("features_indptr", "features_indices", "features_data")
        return sum(_size(*archive.header(name)) for name in names)
    shape, dtype = archive.header("features")
    return 0 if dtype == np.float32 else _size(shape, dtype)


def _size(shape: tuple[int, ...], dtype: np.dtype) -> int:
    return math.prod(shape) * dtype.itemsize
