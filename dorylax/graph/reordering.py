"""Reorder a data set on disk within a budget of memory: find the order of its rows, and write a copy in that order.

Rows of the graph and of arrays of vertices move; vertices keep the user's numbers, which the copy lists
(`dorylax.graph.array_names`, `vertex_ids-1`), and edges keep their ids and values. An array is written in parts that fit in
memory; for each, one pass reads the given array from front to back and picks the rows of the part. A killed process leaves
two folders next to the target, with names that start with a dot. The next process that writes the same target removes them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int32

from dorylax.aligned import empty
from dorylax.errors import named
from dorylax.graph.array_folder import ArrayWriter, FolderWriter, check_target, write_arrays
from dorylax.graph.array_names import (
    CLASS_NAMES,
    EDGE_IDS,
    EDGE_PREFIX,
    MASKS,
    ORDER,
    ORIGINAL_IDS,
    SPARSE,
    VERTEX_PREFIX,
)
from dorylax.graph.build import rows_are_sorted
from dorylax.graph.edge_rows import BLOCK_BYTES, ENTRIES, EdgeRows, Source
from dorylax.graph.graph_arrays import check_names, edge_names, read_features, read_order
from dorylax.graph.partition.locality import communities_within, order_of
from dorylax.graph.partition.metis import give_back_heap
from dorylax.graph.reorder import MOST_THREADS, permuted
from dorylax.graph.rows import MAX_EDGE_IDS, SPAN, edge_ids_fit, inverse_permutation, spans
from dorylax.graph.stored import StoredArrays, open_arrays
from dorylax.graph.validate import GraphError, check_disk, check_permutation
from dorylax.machine import resident_bytes
from dorylax.store.durable import work_folder

_SAMPLED_BYTES = 96  # of a vertex, on disk, while edges between clusters are counted
_LEAST_ROOM = 128 << 20
_MOST_PASSES = 1000
_BLOCK = ENTRIES
# Of blocks of edges, and a span for each thread of `permuted`.
_WORKING_BYTES = max(80 * _BLOCK, 28 * SPAN * min(os.cpu_count() or 1, MOST_THREADS))
_KEPT_BY_ALLOCATOR = 8  # one part in so many: threads' heaps hold on to blocks that were freed, more with more cores
OnStep = Callable[[str, int, int], object]
"""Called with the current step, the number of bytes written, and their total."""


class Reordered(NamedTuple):
    """Numbers of vertices and edges, and the seconds spent on finding the order."""

    num_vertices: int
    num_edges: int
    order_seconds: float


def reorder_on_disk(
    data: Path,
    out: Path,
    *,
    order: str = "community",
    memory: int,
    verify: bool = True,
    on_step: OnStep = lambda *_: None,
) -> Reordered:
    """Write a data set in another memory order.

    Args:
        data: Folder or `.npz` archive.
        out: Path of the new folder, which appears complete or not at all.
        order: "community" (rows by community), or "user" (the order in which the user gave them).
        memory: Bytes that the process may hold.
        verify: Whether to compare the arrays with their checksums.
        on_step: Called with the current step and its progress.

    Raises:
        GraphError: The data set is damaged, memory or disk are too small, or `out` is something else.
        RunError: Another process writes the same folder.
        OSError: The disk is full or fails.
    """
    check_target(out)
    with open_arrays(data, verify=verify) as stored, work_folder(out) as scratch, named(out):
        check_layout(stored)
        rows = EdgeRows.of_stored(stored)
        total, _ = stored_bytes(stored)
        sample = min(8 * rows.num_edges, _SAMPLED_BYTES * rows.num_vertices)
        check_disk(out, max(total, sample if order == "community" else 0))
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
                communities_within(rows, scratch, room, lambda done, of: on_step("finding communities", done, of))
            )
        else:
            ids = read_order(stored, rows.num_vertices)
            found = np.arange(rows.num_vertices, dtype=np.int32) if ids is None else inverse_permutation(ids)
        seconds = time.perf_counter() - begin
        left = memory - resident_bytes()
        write_in_order(stored, found, out, room=left - left // _KEPT_BY_ALLOCATOR, on_step=on_step)
    return Reordered(rows.num_vertices, rows.num_edges, seconds)


def write_in_order(
    stored: StoredArrays, order: Int32[np.ndarray, " V"], path: Path, *, room: int, on_step: OnStep = lambda *_: None
) -> None:
    """Write a copy of a data set with its rows permuted.

    Args:
        stored: Open folder or archive, in any order.
        order: Row `order[i]` moves to row i, int32 `[V]`.
        path: Path of the new folder, which appears complete or not at all.
        room: Memory in bytes without `order`.
        on_step: Called with the current step and its progress.

    Raises:
        GraphError: The data set is damaged, has unknown arrays, or the room is too small.
        OSError: The disk is full, or fails; the error names `path`.
    """
    rows = EdgeRows.of_stored(stored)
    check_permutation("order", order, rows.num_vertices)
    check_layout(stored)
    given = read_order(stored, rows.num_vertices)
    ids = order if given is None else given[order]  # the user's numbers of the vertices in their new rows
    room -= 4 * len(order)
    (total, _), written = stored_bytes(stored), 0

    def put(name: str, array: ArrayWriter, part: np.ndarray) -> None:
        nonlocal written
        array.write(part)
        written += part.nbytes
        on_step(name, written, total)

    def fill(folder: FolderWriter) -> None:
        _write_edges(stored, rows, order, folder, put, room=room)
        give_back_heap()  # of threads that sorted edges: up to a third of the room
        for name in stored.names:
            if name in SPARSE or name == ORDER:
                continue
            if not stored.header(name)[0] or name == CLASS_NAMES:
                folder.add(name, stored.fetch(name))
            elif name in ("features", "labels", ORIGINAL_IDS, *MASKS) or name.startswith(VERTEX_PREFIX):
                source = _source(stored, name, rows.num_vertices, "one row per vertex")
                array = folder.open(name, source.dtype, source.shape)
                # Names are in order of the user's numbers, which stay.
                parts = (block for _, block in source.blocks()) if name == ORIGINAL_IDS else _moved(source, order, room)
                for part in parts:
                    put(name, array, part)
                    del part  # before the next is made
        if SPARSE[0] in stored:  # in old archives, which are small
            folder.add("features", read_features(stored)[order])
        if not np.array_equal(ids, np.arange(len(ids), dtype=np.int32)):  # the user's order is the default
            folder.add(ORDER, ids)
        stored.check_unchanged()
        on_step(ORDER, total, total)

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


def _moved(source: Source, order: Int32[np.ndarray, " V"], room: int) -> Iterator[np.ndarray]:
    """Yield rows `[V, …]` in their new order, in blocks. Raises a GraphError if the room is too small."""
    size = max(1, source.row_bytes)
    per = max(1, (room - 4 * BLOCK_BYTES) // (size + 24))  # 24: of the order inside a part
    _check_passes(-(-len(order) // per), room)
    for first, last in spans(len(order), per):
        place = np.argsort(order[first:last])
        wanted = order[first:last][place]
        part = empty((last - first, *source.shape[1:]), source.dtype)
        for start, block in source.blocks(max(1, BLOCK_BYTES // 4 // size)):
            begin, end = np.searchsorted(wanted, (start, start + len(block)))
            part[place[begin:end]] = block[wanted[begin:end] - start]
        for start, stop in spans(last - first, max(1, BLOCK_BYTES // size)):
            yield part[start:stop]
        del part  # before the next is made


def _write_edges(
    stored: StoredArrays,
    rows: EdgeRows,
    order: Int32[np.ndarray, " V"],
    folder: FolderWriter,
    put: Callable[[str, ArrayWriter, np.ndarray], None],
    *,
    room: int,
) -> None:
    """Write rows in their new order, neighbours by their new numbers and ascending in a row, and values of edges."""
    names = [name for name in (*edge_names(stored).values(), EDGE_IDS) if name in stored]
    values = {name: _source(stored, name, rows.num_edges, "one per entry of indices") for name in names}
    # In another order than the user's the edges have ids already.
    by_place = ORDER not in stored and edge_ids_fit(rows.num_edges) and EDGE_IDS not in values
    if by_place and (values or not all(rows_are_sorted(block.offsets, block.entries) for block in rows.blocks(_BLOCK))):
        int32 = np.dtype(np.int32)
        values[EDGE_IDS] = Source((rows.num_edges,), int32, lambda start, stop: np.arange(start, stop, dtype=int32))
    place, degrees = inverse_permutation(order), rows.degrees()
    widest = max((source.row_bytes for source in values.values()), default=0)
    most = (room - 4 * len(order) - 2 * BLOCK_BYTES - _WORKING_BYTES) // (8 + widest)
    bounds = _bounds(degrees, order, max(1, min(most, MAX_EDGE_IDS)))
    _check_passes(len(bounds) - 1, room)
    offsets = folder.open("indptr", np.dtype(np.int64), (rows.num_vertices + 1,))
    put("indptr", offsets, np.zeros(1, np.int64))
    neighbours = folder.open("indices", np.dtype(np.int32), (rows.num_edges,))
    columns = {name: folder.open(name, source.dtype, source.shape) for name, source in values.items()}
    end = 0
    for first, last in pairwise(bounds):
        own = order[first:last]
        wanted = np.sort(own)
        before = np.append(0, np.cumsum(degrees[wanted], dtype=np.int64))
        size = int(before[-1])
        taken = _entries(rows, wanted, np.empty(size, np.int32))
        new, found = permuted(before, taken, np.searchsorted(wanted, own), place, with_positions=bool(values))
        put("indptr", offsets, new[1:] + end)
        end += size
        for start, stop in spans(size):
            put("indices", neighbours, place[taken[found[start:stop]]] if values else found[start:stop])
        del taken
        for name, source in values.items():
            held = _entries(rows, wanted, empty((size, *source.shape[1:]), source.dtype), source)
            for start, stop in spans(size, max(1, BLOCK_BYTES // max(1, source.row_bytes))):
                put(name, columns[name], held[found[start:stop]])
            del held  # before the next is made


def _bounds(degrees: Int32[np.ndarray, " V"], order: Int32[np.ndarray, " V"], entries: int) -> list[int]:
    """Return the bounds of parts of the new rows that have about so many entries each, one row at least; the last is V."""
    bounds, end = [0], 0
    for start, stop in spans(len(degrees)):
        ends = end + np.cumsum(degrees[order[start:stop]], dtype=np.int64)
        full, end = end // entries, int(ends[-1])
        crossed = np.searchsorted(ends // entries, np.arange(full, end // entries) + 1)
        bounds += (np.unique(crossed) + start).tolist()
    return sorted({*bounds, len(degrees)})


def _entries(
    rows: EdgeRows, wanted: Int32[np.ndarray, " n"], into: np.ndarray, values: Source | None = None
) -> np.ndarray:
    """Fill an array with the neighbours of some rows, ascending, or with values of their edges; return it."""
    end = 0
    for block in rows.blocks(_BLOCK, values):
        own = wanted[slice(*np.searchsorted(wanted, (block.first, block.last)))] - block.first
        starts = block.offsets[own]
        counts = block.offsets[own + 1] - starts
        ends = np.cumsum(counts)
        size = int(counts.sum())
        into[end : end + size] = block.entries[np.repeat(starts - (ends - counts), counts) + np.arange(size)]
        end += size
    return into


def _check_passes(number: int, room: int) -> None:
    if number > _MOST_PASSES:
        raise GraphError(
            f"{room / 2**20:,.0f} MiB of memory, beside what is kept for every vertex, would take {number:,} passes over "
            f"an array, and at most {_MOST_PASSES:,} are made: give more (--memory)"
        )


def _source(stored: StoredArrays, name: str, length: int, per: str) -> Source:
    source = Source.stored(stored, name)
    if source.shape[0] != length:
        raise GraphError(f"{name} has length {source.shape[0]}: expected {length}, {per}")
    return source
