"""Reorder a data set on disk within a budget of memory: find the order of its rows, and write a copy in that order.

Rows of the graph and of arrays of vertices move; vertices keep the user's numbers, which the copy lists
(`dorylax.graph.array_names`, `vertex_ids-1`), and edges keep their ids and values. A killed process leaves two folders next
to the target, with names that start with a dot. The next process that writes the same target removes them.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int32

from dorylax.errors import named
from dorylax.graph.array_folder import FolderWriter, check_target, open_arrays, write_arrays
from dorylax.graph.array_names import (
    CLASS_NAMES,
    EDGE_IDS,
    EDGE_PREFIX,
    MASKS,
    ORDER,
    ORIGINAL_IDS,
    SPARSE,
    VERTEX_PREFIX,
    check_names,
    edge_names,
    read_features,
    read_order,
)
from dorylax.graph.partition.streamed_communities import communities_within, order_of
from dorylax.graph.stored import StoredArrays
from dorylax.graph.stream.edge_rows import EdgeRows, Source
from dorylax.graph.stream.moving import Move, MovedEdges
from dorylax.graph.transpose import edge_ids_fit, inverse_permutation
from dorylax.graph.validate import GraphError, check_disk, check_permutation
from dorylax.machine import resident_bytes
from dorylax.store.durable import work_folder

_SAMPLED_BYTES = 96  # of a vertex, on disk, while edges between clusters are counted
_LEAST_ROOM = 128 << 20
_KEPT_BY_ALLOCATOR = 8  # one part in so many: threads' heaps hold on to blocks that were freed, more with more cores
Told = Callable[[str, int, int], object]
"""Called with the current step, the number of bytes written, and their total."""


class Reordered(NamedTuple):
    """Numbers of vertices and edges, and the seconds spent on finding the order."""

    num_vertices: int
    num_edges: int
    order_seconds: float


def reorder_on_disk(
    data: Path, out: Path, *, order: str = "community", memory: int, verify: bool = True, told: Told = lambda *_: None
) -> Reordered:
    """Write a data set in another memory order.

    Args:
        data: Folder or `.npz` archive.
        out: Path of the new folder, which appears complete or not at all.
        order: "community" (rows by community), or "user" (the order in which the user gave them).
        memory: Bytes that the process may hold.
        verify: Whether to compare the arrays with their checksums.
        told: Called with the current step and its progress.

    Raises:
        GraphError: The data set is damaged, memory or disk are too small, or `out` is something else.
        RunError: Another process writes the same folder.
        OSError: The disk is full or fails.
    """
    check_target(out)
    with open_arrays(data, verify=verify) as stored, work_folder(out) as scratch, named(out):
        check_layout(stored)
        rows = EdgeRows.of_stored(stored)
        total, largest = stored_bytes(stored)
        sample = min(8 * rows.num_edges, _SAMPLED_BYTES * rows.num_vertices)
        check_disk(out, max(total + largest, sample if order == "community" else 0))
        room = memory - resident_bytes()
        if room < _LEAST_ROOM:
            least = resident_bytes() + _LEAST_ROOM
            raise GraphError(
                f"{memory >> 20:,} MiB of memory are too little: the program itself takes {resident_bytes() >> 20:,} MiB, "
                f"give at least {-(-least // 2**20):,} MiB (--memory)"
            )
        begin = time.perf_counter()
        if order == "community":
            found = order_of(
                communities_within(rows, scratch, room, lambda done, of: told("finding communities", done, of))
            )
        else:
            ids = read_order(stored, rows.num_vertices)
            found = np.arange(rows.num_vertices, dtype=np.int32) if ids is None else inverse_permutation(ids)
        seconds = time.perf_counter() - begin
        left = memory - resident_bytes()
        write_in_order(stored, found, out, scratch, room=left - left // _KEPT_BY_ALLOCATOR, told=told)
    return Reordered(rows.num_vertices, rows.num_edges, seconds)


def write_in_order(
    stored: StoredArrays,
    order: Int32[np.ndarray, " V"],
    path: Path,
    scratch: Path,
    *,
    room: int,
    told: Told = lambda *_: None,
) -> None:
    """Write a copy of a data set with its rows permuted.

    Args:
        stored: Open folder or archive, in any order.
        order: Row `order[i]` moves to row i, int32 `[V]`.
        path: Path of the new folder, which appears complete or not at all.
        scratch: Folder for temporary files of about the size of the largest array.
        room: Memory in bytes without `order`.
        told: Called with the current step and its progress.

    Raises:
        GraphError: The data set is damaged, has unknown arrays, or the room is too small.
        OSError: The disk is full, or fails; the error names `path`.
    """
    rows = EdgeRows.of_stored(stored)
    check_permutation("order", order, rows.num_vertices)
    check_layout(stored)
    given = read_order(stored, rows.num_vertices)
    ids = order if given is None else given[order]  # the user's numbers of the vertices in their new rows
    move = Move(order, scratch, room - 4 * len(order))
    (total, _), written = stored_bytes(stored), 0

    def put(
        folder: FolderWriter, name: str, dtype: np.dtype, shape: tuple[int, ...], parts: Iterable[np.ndarray]
    ) -> None:
        nonlocal written
        array = folder.open(name, dtype, shape)
        for part in parts:
            array.write(part)
            written += part.nbytes
            told(name, written, total)
            del part  # before the next is made

    def fill(folder: FolderWriter) -> None:
        _write_edges(stored, rows, move, functools.partial(put, folder))
        for name in stored.names:
            if name in SPARSE or name == ORDER:
                continue
            if not stored.header(name)[0] or name == CLASS_NAMES:
                folder.add(name, stored.fetch(name))
            elif name in ("features", "labels", ORIGINAL_IDS, *MASKS) or name.startswith(VERTEX_PREFIX):
                source = _source(stored, name, rows.num_vertices, "one row per vertex")
                # Names are in order of the user's numbers, which stay.
                parts = (block for _, block in source.blocks()) if name == ORIGINAL_IDS else move.rows(source)
                put(folder, name, source.dtype, source.shape, parts)
        if SPARSE[0] in stored:  # in old archives, which are small
            folder.add("features", read_features(stored)[order])
        if not np.array_equal(ids, np.arange(len(ids), dtype=np.int32)):  # the user's order is the default
            folder.add(ORDER, ids)
        stored.check_unchanged()
        told(ORDER, total, total)

    with named(path):
        write_arrays(path, fill, provenance={"command": "dorylax reorder"})


def check_layout(stored: StoredArrays) -> None:
    """Raise a GraphError for an array that is not known to have a row per vertex, a row per edge, or neither."""
    check_names(stored)
    for name in stored.names:
        if not (
            name in ("indptr", "indices", "features", "labels", ORDER, ORIGINAL_IDS, *SPARSE, *MASKS)
            or name.startswith((VERTEX_PREFIX, EDGE_PREFIX))
            or name == CLASS_NAMES
            or not stored.header(name)[0]  # one value
        ):
            raise GraphError(
                f"has an array {name}, of which it is not known whether it has a row for each vertex: leave it out, or call "
                f"it {VERTEX_PREFIX}{name}"
            )


def stored_bytes(stored: StoredArrays) -> tuple[int, int]:
    """Return the bytes of all arrays, and of the largest one, whose size scratch files reach."""
    sizes = []
    for name in stored.names:
        shape, dtype = stored.header(name)
        sizes.append(int(np.prod(shape, dtype=object)) * dtype.itemsize)
    return sum(sizes), max(sizes, default=0)


def _write_edges(stored: StoredArrays, rows: EdgeRows, move: Move, put: Callable[..., None]) -> None:
    names = [name for name in (*edge_names(stored).values(), EDGE_IDS) if name in stored]
    sources = {name: _source(stored, name, rows.num_edges, "one per entry of indices") for name in names}
    # In another order than the user's the edges have ids already.
    by_place = ORDER not in stored and edge_ids_fit(rows.num_edges)
    edges = MovedEdges(rows, move, max([4 * by_place, *(source.row_bytes for source in sources.values())]))
    try:
        put("indptr", np.dtype(np.int64), (rows.num_vertices + 1,), edges.offsets())
        edges.deal()
        if by_place and EDGE_IDS not in sources and (sources or not edges.ascending):
            int32 = np.dtype(np.int32)
            sources[EDGE_IDS] = Source(
                (rows.num_edges,), int32, lambda start, stop: np.arange(start, stop, dtype=int32)
            )
        neighbours = edges.neighbours(keep=bool(sources))
        put("indices", np.dtype(np.int32), (rows.num_edges,), neighbours)
        for name, source in sources.items():
            put(name, source.dtype, source.shape, edges.along(source))
    finally:
        edges.close()


def _source(stored: StoredArrays, name: str, length: int, per: str) -> Source:
    source = Source.stored(stored, name)
    if source.shape[0] != length:
        raise GraphError(f"{name} has length {source.shape[0]}: expected {length}, {per}")
    return source
