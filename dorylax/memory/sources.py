"""The shape of a data set that a configuration names, without loading or generating it."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from dorylax.config.schema import DataConfig
from dorylax.graph.datasets import communities
from dorylax.graph.datasets.registry import PUBLISHED, archive_of
from dorylax.graph.graph import SelfLoops
from dorylax.graph.npz import Archive, open_npz
from dorylax.memory.shapes import DataShape


def shape_of(config: DataConfig) -> DataShape | None:
    """The sizes of the data set that the `data` section names.

    Of an archive only headers are read, and single numbers; its labels where it does not say how many classes there
    are. An archive that does not say whether its graph is directed, or has self-loops, is taken for one that is and has
    some: that takes more.

    Returns:
        The shape; None where there is no such data set (loading it says why).

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
        return archive_shape(file)
    if config.name in PUBLISHED:
        size = PUBLISHED[config.name].size
        return DataShape(size.num_vertices, size.num_edges, size.num_features, size.num_classes, origin="published")
    return None


def archive_shape(path: Path) -> DataShape:
    """The sizes of the data set in an archive, by its headers.

    Raises:
        GraphError: it is not an npz archive, or lacks `indptr`, `indices`, `labels` or features.
        OSError: it cannot be opened.
    """
    with open_npz(path) as archive:
        sparse = "features_shape" in archive
        archive.require("indptr", "indices", "labels", *(() if sparse else ("features",)))
        (num_edges,), index = archive.header("indices")
        num_vertices = archive.header("indptr")[0][0] - 1
        labels, _ = archive.header("labels")
        width = int(archive.fetch("features_shape")[1]) if sparse else archive.header("features")[0][1]
        symmetric = "directed" in archive and not archive.fetch("directed")
        float32 = not sparse and archive.header("features")[1] == np.float32
        # Rows by source serve as rows by target where the archive says so; otherwise they are sorted, and others.
        own_ids = "edge_ids" in archive
        as_stored = symmetric and index == np.int32 and not own_ids
        return DataShape(
            num_vertices,
            num_edges,
            width,
            _num_classes(archive, labels),
            symmetric=symmetric,
            self_loops=_self_loops(archive),
            multilabel=len(labels) == 2,
            own_edge_order=own_ids,
            features_in="mapped" if float32 and archive.maps("features") else "elsewhere",
            graph_in="mapped" if as_stored and archive.maps("indices") else "elsewhere",
            stored_bytes=_stored(archive, sparse=sparse) + max(0, index.itemsize - 4) * num_edges,
        )


def _self_loops(archive: Archive) -> SelfLoops:
    """As the archive says; what takes most where it does not, or says what loading it will refuse."""
    said = str(archive.fetch("self_loops")) if "self_loops" in archive else "some"
    return "none" if said == "none" else "all" if said == "all" else "some"


def _num_classes(archive: Archive, labels: tuple[int, ...]) -> int:
    if "num_classes" in archive:
        return int(archive.fetch("num_classes"))
    return labels[1] if len(labels) == 2 else int(archive.fetch("labels").max(initial=0)) + 1


def _stored(archive: Archive, *, sparse: bool) -> int:
    """Bytes of features in a form that is converted: compressed rows, or another type than float32."""
    if sparse:
        names = ("features_indptr", "features_indices", "features_data")
        return sum(_size(*archive.header(name)) for name in names)
    shape, dtype = archive.header("features")
    return 0 if dtype == np.float32 else _size(shape, dtype)


def _size(shape: tuple[int, ...], dtype: np.dtype) -> int:
    return math.prod(shape) * dtype.itemsize
