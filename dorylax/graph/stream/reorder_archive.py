"""An archive in another memory order, written from one on disk without the graph in memory.

Rows of the graph, and of all that vertices have, come to other places; vertices keep the user's numbers, which the new
archive lists (`dorylax.graph.npz`, `vertex_ids-1`), and edges keep their ids and values.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import final

import numpy as np
from jaxtyping import Int32

from dorylax.errors import named
from dorylax.graph.archive import edge_names
from dorylax.graph.npz import (
    CLASS_NAMES,
    MASKS,
    ORDER,
    ORIGINAL_IDS,
    SPARSE,
    VERTEX_PREFIX,
    Archive,
    check_names,
    read_order,
)
from dorylax.graph.stream.archive_reader import Source, blocks, row_bytes, rows_of_member
from dorylax.graph.stream.archive_writer import ArchiveWriter, new_archive
from dorylax.graph.stream.edge_rows import EdgeRows
from dorylax.graph.stream.moving import Move, MovedEdges
from dorylax.graph.transpose import edge_ids_fit
from dorylax.graph.validate import GraphError, check_permutation

_IDS = "edge_ids"
Told = Callable[[str, int, int], object]
"""Is told what is being done, and how many bytes of how many are written."""


def write_in_order(
    archive: Archive,
    order: Int32[np.ndarray, " V"],
    path: Path,
    scratch: Path,
    *,
    room: int,
    told: Told = lambda *_: None,
) -> None:
    """Writes an archive with its rows permuted.

    Args:
        archive: an open one, in the user's order or any other.
        order: row `order[i]` comes to row i, int32 `[V]`.
        path: of the new file, which appears whole or not at all.
        scratch: a folder for files of about the size of the largest array; nothing is left in it.
        room: bytes that may be held beside `order`.
        told: how far it is.

    Raises:
        GraphError: the archive is damaged, has arrays that are no part of the layout, or the room is too small.
        OSError: the disk is full, or fails; it names `path`.
    """
    rows = EdgeRows.of_archive(archive)
    check_permutation("order", order, rows.num_vertices)
    check_layout(archive)
    ids = read_order(archive, rows.num_vertices)
    move = Move(order, scratch, room - 4 * len(order))
    with named(path), new_archive(path) as out:
        _Writing(archive, rows, move, out, told).write(order if ids is None else ids[order])


def check_layout(archive: Archive) -> None:
    """Passes for archives whose every array is known to be of vertices, of edges, or of neither.

    Raises:
        GraphError: there is another one; says which.
    """
    check_names(archive)
    for name in archive.names:
        if not (
            name in ("indptr", "indices", "features", "labels", ORDER, ORIGINAL_IDS, *SPARSE, *MASKS)
            or name.startswith((VERTEX_PREFIX, "edge_"))
            or name == CLASS_NAMES
            or not archive.header(name)[0]  # one value
        ):
            raise GraphError(
                f"has an array {name}, of which it is not known whether it has a row for each vertex: leave it out, or call "
                f"it {VERTEX_PREFIX}{name}"
            )


def stored_bytes(archive: Archive) -> tuple[int, int]:
    """Bytes of all arrays, and of the largest, of which scratch files have as many."""
    sizes = []
    for name in archive.names:
        shape, dtype = archive.header(name)
        sizes.append(int(np.prod(shape, dtype=object)) * dtype.itemsize)
    return sum(sizes), max(sizes, default=0)


def check_disk(folder: Path, needed: int) -> None:
    """Passes where a folder's disk has room for so many bytes.

    Raises:
        GraphError: it has not.
    """
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise GraphError(
            f"{needed / 2**30:,.1f} GiB are to be written in {folder}, whose disk has {free / 2**30:,.1f} GiB free: "
            "make room, or choose another disk"
        )


@final
class _Writing:
    """One archive in the making."""

    def __init__(self, archive: Archive, rows: EdgeRows, move: Move, out: ArchiveWriter, told: Told) -> None:
        self._archive, self._rows, self._move, self._out, self._told = archive, rows, move, out, told
        self._total, _ = stored_bytes(archive)
        self._written = 0

    def write(self, ids: Int32[np.ndarray, " V"]) -> None:
        """Writes all members; `ids` are the user's numbers of the vertices in their new rows."""
        archive = self._archive
        self._write_edges()
        for name in archive.names:
            if name in SPARSE or name == ORDER:
                continue
            if not archive.header(name)[0] or name == CLASS_NAMES:
                self._out.add(name, archive.fetch(name))
            elif name in ("features", "labels", ORIGINAL_IDS, *MASKS) or name.startswith(VERTEX_PREFIX):
                source = rows_of_member(archive, name)
                _check_length(name, source, self._rows.num_vertices)
                parts = self._move.rows(source)
                if name == ORIGINAL_IDS:  # in order of the numbers, which stay
                    parts = (block for _, block in blocks(source))
                self._put(name, source.dtype, source.shape, parts)
        if SPARSE[0] in archive:
            self._write_sparse()
        if not np.array_equal(ids, np.arange(len(ids), dtype=np.int32)):  # the user's own order needs no words
            self._out.add(ORDER, ids)
        archive.check_unchanged()
        self._told(ORDER, self._total, self._total)

    def _write_edges(self) -> None:
        archive, rows = self._archive, self._rows
        sources = {
            name: rows_of_member(archive, name) for name in (*edge_names(archive).values(), _IDS) if name in archive
        }
        for name, source in sources.items():
            _check_length(name, source, rows.num_edges, "one per entry of indices")
        # Only an archive in the user's order may have to say what its edges' ids are.
        given = ORDER not in archive and edge_ids_fit(rows.num_edges)
        edges = MovedEdges(rows, self._move, max([4 * given, *map(row_bytes, sources.values())]))
        try:
            self._put("indptr", np.dtype(np.int64), (rows.num_vertices + 1,), edges.offsets())
            edges.deal()
            if given and _IDS not in sources and (sources or not edges.ascending):
                sources[_IDS] = _Places(rows.num_edges)
            neighbours = edges.neighbours(keep=bool(sources))
            self._put("indices", np.dtype(np.int32), (rows.num_edges,), neighbours)
            for name, source in sources.items():
                self._put(name, source.dtype, source.shape, edges.along(source))
        finally:
            edges.close()

    def _write_sparse(self) -> None:
        """Features in compressed rows, which are rare and small: in memory."""
        archive, order = self._archive, self._move.order
        archive.require(*SPARSE)
        shape = archive.fetch(SPARSE[3])
        size = sum(int(np.prod(archive.header(name)[0])) * 8 for name in SPARSE[:3])
        if 3 * size > self._move.room:
            raise GraphError(
                f"features in compressed rows take {3 * size / 2**30:,.1f} GiB here, which is more than there is room for: "
                "store them as one array, or give more (--memory)"
            )
        offsets, columns, values = (archive.fetch(name) for name in SPARSE[:3])
        if len(offsets) != len(order) + 1:
            raise GraphError(f"{SPARSE[0]} has {len(offsets)} numbers, expected one per vertex and one more")
        counts = np.diff(offsets)[order]
        ends = np.cumsum(counts)
        entries = np.repeat(offsets[order] - (ends - counts), counts) + np.arange(ends[-1] if len(ends) else 0)
        moved = (np.concatenate([[0], ends]).astype(offsets.dtype), columns[entries], values[entries], shape)
        for name, array in zip(SPARSE, moved, strict=True):
            self._out.add(name, array)

    def _put(self, name: str, dtype: np.dtype, shape: tuple[int, ...], parts: Iterable[np.ndarray]) -> None:
        array = self._out.open(name, dtype, shape)
        for part in parts:
            array.write(part)
            self._written += part.nbytes
            self._told(name, self._written, self._total)
            del part  # before the next is made


@final
class _Places:
    """The place of each edge among all, as an array that is nowhere (`archive_reader.Source`)."""

    def __init__(self, num_edges: int) -> None:
        self.shape: tuple[int, ...] = (num_edges,)
        self.dtype = np.dtype(np.int32)

    def read(self, start: int, stop: int) -> np.ndarray:
        """See `Source`."""
        return np.arange(start, stop, dtype=np.int32)


def _check_length(name: str, source: Source, length: int, what: str = "one row per vertex") -> None:
    if source.shape[0] != length:
        raise GraphError(f"{name} has length {source.shape[0]}: expected {length}, {what}")
