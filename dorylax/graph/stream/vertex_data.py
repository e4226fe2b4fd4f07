"""What is known about vertices, from files, checked and written to an archive piece by piece.

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
from dorylax.graph.masks import checked_masks
from dorylax.graph.npz import MASKS, VERTEX_PREFIX
from dorylax.graph.stream.archive_writer import ArchiveWriter
from dorylax.graph.stream.vertex_rows import Rows
from dorylax.graph.validate import GraphError, check_finite


class VertexFiles(NamedTuple):
    """Files of arrays with a row per vertex, each as `Rows.of` takes it.

    Attributes:
        features: `[V, F]`.
        labels: as `Dataset` takes them.
        masks: of `MASKS`, as `Dataset` takes them.
        inputs: further inputs by name, `[V, …]`.
        num_classes: C; None where it follows from the labels.
        multilabel: whether labels are any number of classes; None where that can be seen.
        nan_is_unlabelled: whether floating labels are classes, and NaN where there is none.
    """

    features: Path | None = None
    labels: Path | None = None
    masks: Mapping[str, Path] = {}
    inputs: Mapping[str, Path] = {}
    num_classes: int | None = None
    multilabel: bool | None = None
    nan_is_unlabelled: bool = False

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
    found = {name: Rows.of(path) for name, path in files.paths.items()}
    features = found.get("features")
    if features is not None and (len(features.row) != 1 or features.row[0] == 0):
        shape = ["V", *features.row]
        raise GraphError(f"{features.path}: features must be real numbers [V, F], got {features.dtype} {shape}")
    rows = _counts(found)
    if len(set(rows.values())) > 1:
        told = ", ".join(f"{name} {count:,}" for name, count in rows.items())
        raise GraphError(f"arrays of vertices differ in their number of rows: {told}")


def rows_said(files: VertexFiles) -> int | None:
    """How many vertices there are, as the files have it; None where none says it."""
    return next(iter(_counts({name: Rows.of(path) for name, path in files.paths.items()}).values()), None)


def write_vertex_data(archive: ArchiveWriter, files: VertexFiles, num_vertices: int) -> None:
    """Writes all arrays of vertices.

    Raises:
        GraphError: as `Dataset`.
        OSError: a file cannot be read, or the file system refuses.
    """
    if files.features is not None:
        _stream(archive, "features", Rows.of(files.features), np.dtype(np.float32), num_vertices)
    if files.labels is not None:
        given = Rows.of(files.labels).whole()
        if files.nan_is_unlabelled and given.dtype.kind == "f":
            given = np.where(np.isnan(given), -1, given).astype(np.int64)
        labels = checked_labels(given, num_vertices, files.num_classes, files.multilabel)
        archive.add("labels", labels.array)
        if files.masks:
            masks = {name: Rows.of(files.masks[name]).whole() if name in files.masks else None for name in MASKS}
            flat = {
                name: mask[:, 0] if mask is not None and mask.shape[1:] == (1,) else mask
                for name, mask in masks.items()
            }
            for name, mask in checked_masks(flat, labels.array).items():
                archive.add(name, mask)
        if labels.num_classes is not None:
            archive.add("num_classes", np.array(labels.num_classes))
            archive.add("multilabel", np.array(labels.multilabel))
    for name, path in files.inputs.items():
        rows = Rows.of(path)
        _stream(archive, f"{VERTEX_PREFIX}{name}", rows, held_dtype(rows.dtype), num_vertices)


def _counts(found: Mapping[str, Rows]) -> dict[str, int]:
    """Rows of the arrays that have one per vertex, as far as their files say it."""
    per_vertex = {name: rows for name, rows in found.items() if name not in MASKS or rows.dtype == bool}
    return {name: rows.size for name, rows in per_vertex.items() if rows.size is not None}


def _stream(archive: ArchiveWriter, name: str, rows: Rows, dtype: np.dtype[Any], num_vertices: int) -> None:
    column = archive.open(name, dtype, (num_vertices, *rows.row))
    count = 0
    for piece in rows.pieces():
        if dtype == np.int32 and piece.dtype != np.int32:
            for extreme in (int(piece.min()), int(piece.max())):
                if not -(2**31) <= extreme < 2**31:
                    raise GraphError(
                        f"{name} holds {extreme}, which int32 does not: renumber, or give floating numbers"
                    )
        with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite, and is then refused
            held = piece.astype(dtype)
        if dtype.kind == "f":
            check_finite(f"{name}[{count}:]" if count else name, held)
        count += len(held)
        if count > num_vertices:
            break
        column.write(held)
    if count != num_vertices:
        more = "more than " if count > num_vertices else ""
        raise GraphError(f"{rows.path}: {name} has {more}{min(count, num_vertices):,} rows, expected {num_vertices:,}")
