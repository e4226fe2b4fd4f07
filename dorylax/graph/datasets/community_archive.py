"""`communities` written to a folder part by part: the arrays that saving `load`'s data set gives, in a few bytes a vertex.

Rows come from the generator in order, and so do features; neither is ever in memory whole, or anywhere twice.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dorylax.graph.array_folder import FolderWriter, check_target, write_arrays
from dorylax.graph.array_names import MASKS
from dorylax.graph.datasets.base import DatasetError, Size
from dorylax.graph.datasets.communities import DEFAULT_SIZE, NAME, Communities
from dorylax.graph.validate import check_disk, gibibytes
from dorylax.machine import cores, memory_limit, resident_bytes

Progress = Callable[[int, int, str], object]
"""Called with the number of bytes written, their total, and the kind of the last ones."""

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
    """Write the folder; see `registry.generate` for errors.

    Args:
        path: Path of the folder.
        size: A key of `communities.SIZES`.
        split_seed: Seed of the split.
        memory: Bytes that this process may take in all.
        progress: Called with the progress.
        options: Fields of `communities.Options`.
    """
    check_target(path)
    drawn = Communities(size, split_seed, options)
    threads = _threads(drawn, memory)
    written = _Written(_bytes(drawn.shape), progress)

    def fill(folder: FolderWriter) -> None:
        check_disk(path, written.total)
        _write(drawn, folder, threads, written)

    write_arrays(path, fill, provenance={"command": "dorylax generate", "options": repr({"size": size, **options})})


class _Written:
    """How far it is."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self.total, self._progress, self._done = total, progress, 0

    def more(self, count: int, what: str) -> None:
        """So many bytes more."""
        self._done += count
        if self._progress is not None:
            self._progress(self._done, self.total, what)


def _write(drawn: Communities, folder: FolderWriter, threads: int, written: _Written) -> None:
    V, E = drawn.shape.num_vertices, drawn.shape.num_edges
    written.more(0, "communities")
    indptr = folder.open("indptr", np.dtype(np.int64), (V + 1,))
    indices = folder.open("indices", np.dtype(np.int32), (E,))
    folder.add("directed", np.array(False))
    folder.add("self_loops", np.array("none"))
    folder.add("name", np.array(NAME))
    features = folder.open("features", np.dtype(np.float32), (V, drawn.shape.num_features))
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
    folder.add("labels", labels)
    for name, mask in zip(MASKS, drawn.split(labels), strict=True):
        folder.add(name, mask)
    folder.add("num_classes", np.array(drawn.shape.num_classes))
    folder.add("multilabel", np.array(False))
    written.more((4 + 3) * V, "labels")


def _bytes(shape: Size) -> int:
    """Size of all arrays without headers."""
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
