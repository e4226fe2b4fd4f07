"""Reorder an archive within a memory budget: find the order of its rows, and write a copy in that order.

A killed process leaves a folder and a file next to the new archive, with names that start with a dot. The next process that
writes the same archive removes them and starts again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dorylax.errors import named
from dorylax.graph.edge_order import inverse_permutation
from dorylax.graph.npz import open_npz, read_order
from dorylax.graph.partition.streamed_communities import communities_within, order_of
from dorylax.graph.stream.edge_rows import EdgeRows
from dorylax.graph.stream.reorder_archive import Told, check_disk, check_layout, stored_bytes, write_in_order
from dorylax.graph.validate import GraphError
from dorylax.machine import resident_bytes
from dorylax.store.folder_lock import clear_work_folder, work_folder

_SAMPLED_BYTES = 96  # of a vertex, on disk, while edges between clusters are counted
_LEAST_ROOM = 128 << 20
_KEPT_BY_ALLOCATOR = 8  # one part in so many: threads' heaps hold on to blocks that were freed, more with more cores


class Reordered(NamedTuple):
    """Summary of a reordering.

    Attributes:
        num_vertices: V.
        num_edges: E.
        order_seconds: Seconds spent on finding the order.
    """

    num_vertices: int
    num_edges: int
    order_seconds: float


def reorder_archive(
    data: Path,
    out: Path,
    *,
    order: str = "community",
    memory: int,
    verify: bool = True,
    told: Told = lambda *_: None,
) -> Reordered:
    """Writes `data` in another memory order.

    Args:
        data: Archive in the layout of `dorylax.graph.npz`.
        out: Path of the new archive, which appears complete or not at all.
        order: "community" (rows by community), or "user" (the order in which the user gave them).
        memory: Bytes that the process may hold.
        verify: Whether to compare the arrays with their checksums.
        told: Called with the current step and its progress.

    Raises:
        GraphError: The file is no archive or is damaged, or memory or disk are too small.
        FolderHeldError: Another process writes the same archive.
        FileExistsError: A foreign file or folder has the name of the folder for temporary files.
        OSError: The disk is full or fails.
    """
    with open_npz(data, verify=verify) as archive, scratch_beside(out) as scratch:
        check_layout(archive)
        rows = EdgeRows.of_archive(archive)
        total, largest = stored_bytes(archive)
        sample = min(8 * rows.num_edges, _SAMPLED_BYTES * rows.num_vertices)
        check_disk(out.parent, max(total + largest, sample if order == "community" else 0))
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
            ids = read_order(archive, rows.num_vertices)
            found = np.arange(rows.num_vertices, dtype=np.int32) if ids is None else inverse_permutation(ids)
        seconds = time.perf_counter() - begin
        left = memory - resident_bytes()
        write_in_order(archive, found, out, scratch, room=left - left // _KEPT_BY_ALLOCATOR, told=told)
    return Reordered(rows.num_vertices, rows.num_edges, seconds)


@contextlib.contextmanager
def scratch_beside(out: Path) -> Iterator[Path]:
    """A locked folder for temporary files next to the archive `out`, removed at the end.

    Raises:
        FileExistsError: Another program or the user has given the folder's name to something.
        FolderHeldError: Another process writes the same archive.
    """
    folder = out.with_name(f".{out.name}.scratch")
    with work_folder(folder), named(out):
        clear_work_folder(folder)
        try:
            yield folder
        finally:
            clear_work_folder(folder)
