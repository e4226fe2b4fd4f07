"""What is known about vertices, from files of NumPy, checked and written to an archive piece by piece.

Features and further inputs of any size are streamed. Labels and masks are held, 7 bytes a vertex, because they are checked
against each other; the checks are those of `Dataset`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dorylax.graph.inputs import check_name, held_dtype
from dorylax.graph.labels import checked_labels
from dorylax.graph.mapped import release
from dorylax.graph.masks import checked_masks
from dorylax.graph.npz import MASKS, VERTEX_PREFIX
from dorylax.graph.rows import spans
from dorylax.graph.stream.archive_writer import ArchiveWriter
from dorylax.graph.stream.readers.npy import mapped_array
from dorylax.graph.validate import GraphError, check_finite, check_length

_PIECE = 1 << 22  # elements that are converted at once


class VertexFiles(NamedTuple):
    """Files of arrays with a row per vertex.

    Attributes:
        features: `[V, F]`.
        labels: as `Dataset` takes them.
        masks: of `MASKS`, as `Dataset` takes them.
        inputs: further inputs by name, `[V, …]`.
        num_classes: C; None where it follows from the labels.
        multilabel: whether labels are any number of classes; None where that can be seen.
    """

    features: Path | None = None
    labels: Path | None = None
    masks: Mapping[str, Path] = {}
    inputs: Mapping[str, Path] = {}
    num_classes: int | None = None
    multilabel: bool | None = None

    @property
    def paths(self) -> dict[str, Path]:
        """All files by the name of what they hold."""
        own = {"features": self.features, "labels": self.labels}
        named = {f"{VERTEX_PREFIX}{name}": path for name, path in self.inputs.items()}
        return {name: path for name, path in own.items() if path is not None} | dict(self.masks) | named


def check_files(files: VertexFiles) -> None:
    """What can be said of the files before the vertices are counted.

    Raises:
        GraphError: a file is damaged, or holds something else than is said.
        OSError: it cannot be read.
    """
    if files.masks and files.labels is None:
        raise GraphError(f"{next(iter(files.masks))} is given without labels: masks say which labels are for what")
    for name in files.inputs:
        check_name("vertex_inputs", name)
    rows = {}
    for name, path in files.paths.items():
        array = mapped_array(path)
        if array.dtype.kind not in "fiub" or array.ndim == 0:
            raise GraphError(f"{path}: {name} must be real numbers [V, …], got {array.dtype} {list(array.shape)}")
        if name == "features" and (array.ndim != 2 or array.shape[1] == 0):
            raise GraphError(f"{path}: features must be real numbers [V, F], got {array.dtype} {list(array.shape)}")
        if name not in MASKS or array.dtype == bool:
            rows[name] = len(array)
    if len(set(rows.values())) > 1:
        told = ", ".join(f"{name} {count:,}" for name, count in rows.items())
        raise GraphError(f"arrays of vertices differ in their number of rows: {told}")


def rows_said(files: VertexFiles) -> int | None:
    """How many vertices there are, as the files have it; None where there is none."""
    for name, path in files.paths.items():
        array = mapped_array(path)
        if name not in MASKS or array.dtype == bool:
            return len(array)
    return None


def write_vertex_data(archive: ArchiveWriter, files: VertexFiles, num_vertices: int) -> None:
    """Writes all arrays of vertices.

    Raises:
        GraphError: as `Dataset`.
        OSError: a file cannot be read, or the file system refuses.
    """
    if files.features is not None:
        _stream(archive, "features", mapped_array(files.features), np.dtype(np.float32), num_vertices)
    if files.labels is not None:
        labels = checked_labels(mapped_array(files.labels), num_vertices, files.num_classes, files.multilabel)
        archive.add("labels", labels.array)
        if files.masks:
            given = {name: mapped_array(files.masks[name]) if name in files.masks else None for name in MASKS}
            for name, mask in checked_masks(given, labels.array).items():
                archive.add(name, mask)
        if labels.num_classes is not None:
            archive.add("num_classes", np.array(labels.num_classes))
            archive.add("multilabel", np.array(labels.multilabel))
    for name, path in files.inputs.items():
        array = mapped_array(path)
        _stream(archive, f"{VERTEX_PREFIX}{name}", array, held_dtype(array.dtype), num_vertices)


def _stream(archive: ArchiveWriter, name: str, array: np.ndarray, dtype: np.dtype[Any], num_vertices: int) -> None:
    check_length(name, array, num_vertices, "one row per vertex")
    column = archive.open(name, dtype, array.shape)
    width = max(1, array[:1].size)
    for start, stop in spans(len(array), max(1, _PIECE // width)):
        piece = array[start:stop]
        if dtype == np.int32 and array.dtype != np.int32:
            for extreme in (int(piece.min()), int(piece.max())):
                if not -(2**31) <= extreme < 2**31:
                    raise GraphError(f"{name} holds {extreme}, which int32 does not: renumber, or give floating numbers")
        with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite, and is then refused
            held = piece.astype(dtype)
        if dtype.kind == "f":
            check_finite(f"{name}[{start}:]" if start else name, held)
        column.write(held)
        release(array)
