"""`communities` written to an archive part by part: the file that saving `load`'s data set gives, in a few bytes a vertex.

Rows come from the generator in order, and so do features; neither is ever in memory whole, or anywhere twice.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dorylax.graph.datasets.base import DatasetError, Size
from dorylax.graph.datasets.communities import DEFAULT_SIZE, NAME, Communities
from dorylax.graph.npz import MASKS
from dorylax.graph.room import check_disk, gibibytes
from dorylax.graph.stream.archive_writer import ArchiveWriter, new_archive
from dorylax.machine import cores, memory_limit, resident_bytes

Progress = Callable[[int, int, str], object]
"""Is told how many bytes are written, how many there will be, and what they are."""

_MOST_THREADS = 16
_BESIDE = 96 << 20  # of allocators and of Python, beside the arrays that are counted


def write(
    path: Path,
    *,
    size: str = DEFAULT_SIZE,
    split_seed: int = 0,
    memory: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> None:
    """Writes the archive; `registry.generate` says what arguments and errors are.

    Args:
        path: of the file.
        size: a key of `communities.SIZES`.
        split_seed: of the split.
        memory: bytes that this process may take in all.
        progress: is told how far it is.
        options: fields of `communities.Options`.
    """
    if path.suffix != ".npz":
        raise DatasetError(f"{path} does not end in .npz, by which load knows an archive")
    drawn = Communities(size, split_seed, options)
    threads = _threads(drawn, memory)
    written = _Written(_bytes(drawn.shape), progress)
    with new_archive(path) as archive:
        check_disk(path, written.total)
        _write(drawn, archive, threads, written)


class _Written:
    """How far it is."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self.total, self._progress, self._done = total, progress, 0

    def more(self, count: int, what: str) -> None:
        """So many bytes more."""
        self._done += count
        if self._progress is not None:
            self._progress(self._done, self.total, what)


def _write(drawn: Communities, archive: ArchiveWriter, threads: int, written: _Written) -> None:
    V, E = drawn.shape.num_vertices, drawn.shape.num_edges
    written.more(0, "communities")
    indptr = archive.open("indptr", np.dtype(np.int64), (V + 1,))
    indices = archive.open("indices", np.dtype(np.int32), (E,))
    archive.add("directed", np.array(False))
    archive.add("self_loops", np.array("none"))
    archive.add("name", np.array(NAME))
    features = archive.open("features", np.dtype(np.float32), (V, drawn.shape.num_features))
    indptr.write(np.zeros(1, np.int64))
    edges = 0
    for rows in drawn.block_model().row_blocks(threads):
        indptr.write(np.cumsum(rows.degrees) + edges)
        indices.write(rows.neighbours)
        edges += len(rows.neighbours)
        written.more(rows.degrees.nbytes + rows.neighbours.nbytes, "edges")
    for block in drawn.feature_blocks(threads):
        features.write(block)
        written.more(block.nbytes, "features")
    labels = drawn.labels()
    archive.add("labels", labels)
    for name, mask in zip(MASKS, drawn.split(labels), strict=True):
        archive.add(name, mask)
    archive.add("num_classes", np.array(drawn.shape.num_classes))
    archive.add("multilabel", np.array(False))
    written.more((4 + 3) * V, "labels")


def _bytes(shape: Size) -> int:
    """Of the file, its headers apart."""
    V = shape.num_vertices
    return 8 * V + 4 * shape.num_edges + 4 * V * shape.num_features + (4 + 3) * V


def _threads(drawn: Communities, memory: int | None) -> int:
    """As many as memory suffices for."""
    if memory is None:
        limit = memory_limit()
        memory = sys.maxsize if limit is None else limit.bytes
    base = resident_bytes() + _BESIDE
    for threads in range(min(cores(), _MOST_THREADS), 0, -1):
        if (needed := base + drawn.bytes_in_parts(threads)) <= memory:
            return threads
    raise DatasetError(
        f"memory = {gibibytes(memory)} is too little to generate {drawn.shape.num_vertices:,} vertices and "
        f"{drawn.shape.num_edges:,} edges: {gibibytes(needed)} would do"
    )
