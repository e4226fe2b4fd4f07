"""From edges in any order to the rows of an archive: records that are sorted on disk, then made edges and written.

A record's key holds source, target, and whether it is the reverse of an edge that was given; its values are the edge's
position in what was given, which is its id, and what it carries. What comes out is what `Graph.from_coo`, `coalesce`,
`symmetrise` and `save_npz` make of the same edges, array for array.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, final

import numpy as np
from jaxtyping import Int32, Int64

from dorylax.durable import named
from dorylax.graph.edge_data import require_ids_for
from dorylax.graph.fingerprint import pair_fingerprint
from dorylax.graph.rows import spans
from dorylax.graph.stream.archive_writer import ArchiveWriter, ArrayWriter
from dorylax.graph.stream.external_sort import ExternalSort
from dorylax.graph.stream.readers.base import Values
from dorylax.graph.stream.sorting import Records
from dorylax.graph.transpose import edge_ids_fit

_ID = "id"
_PIECE = 1 << 20  # elements that are moved at once
_PREFIX = "edge_"
_IDS = "edge_ids"


class Shape(NamedTuple):
    """What records hold, and what becomes of them.

    Attributes:
        values: of edges, by name.
        ids: whether edges have ids.
        coalesce: what becomes of equal edges; False keeps all.
        symmetrise: whether each edge gets its reverse.
    """

    values: Mapping[str, Values]
    ids: bool = True
    coalesce: Literal[False, "first", "sum"] = False
    symmetrise: bool = False

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """Of the values of a record."""
        if not self.values:
            return np.dtype(np.uint32) if self.ids else None
        fields: list[Any] = [(f"{_PREFIX}{name}", kept.dtype, kept.row) for name, kept in self.values.items()]
        return np.dtype([(_ID, "<u4"), *fields])

    @property
    def records_per_edge(self) -> int:
        """At most."""
        return 2 if self.symmetrise else 1

    @property
    def keeps_all(self) -> bool:
        """Whether there are as many edges in the archive as were given."""
        return not (self.coalesce or self.symmetrise)


class Facts(NamedTuple):
    """What is known of all edges once they were read.

    Attributes:
        num_vertices: V.
        num_edges: as many as were given.
        ascending: whether they came by source, then by target.
        balanced: whether sources and targets may be the same numbers as often: False where no graph of these edges is
            symmetric unless some are dropped.
    """

    num_vertices: int
    num_edges: int
    ascending: bool
    balanced: bool


class Made(NamedTuple):
    """What an archive holds.

    Attributes:
        num_edges: E.
        symmetric: whether each edge comes with its reverse.
        self_loops: "none", "some" or "all" vertices have an edge to themselves.
        edge_ids: whether edges have ids.
    """

    num_edges: int
    symmetric: bool
    self_loops: str
    edge_ids: bool


def records(
    shape: Shape,
    sources: Int64[np.ndarray, " n"],
    targets: Int64[np.ndarray, " n"],
    first: int,
    values: Mapping[str, np.ndarray],
) -> Records:
    """The records of some edges.

    Args:
        shape: of records.
        sources: numbers of vertices.
        targets: numbers of vertices.
        first: the position of the first edge.
        values: of the edges, by name.
    """
    keys = sources << 32 | targets << 1
    dtype = shape.dtype
    held = None
    if dtype is not None:
        ids = np.arange(first, first + len(keys), dtype=np.int64).astype(np.uint32)
        if dtype.names is None:
            held = ids
        else:
            held = np.empty(len(keys), dtype)
            held[_ID] = ids
            for name, array in values.items():
                held[f"{_PREFIX}{name}"] = array
    if not shape.symmetrise:
        return Records(keys, held)
    others = sources != targets
    reverse = (targets << 32 | sources << 1 | 1)[others]
    return Records(np.concatenate([keys, reverse]), None if held is None else np.concatenate([held, held[others]]))


def write_edges(
    archive: ArchiveWriter, sort: ExternalSort, shape: Shape, facts: Facts, folder: Path
) -> Iterator[int | Made]:
    """Writes the arrays of a graph.

    Args:
        archive: gets them.
        sort: holds the records.
        shape: of records.
        facts: of all edges.
        folder: for columns whose length shows at the end only.

    Yields:
        Records that were taken so far; at the end what was made.

    Raises:
        GraphError: edges have values, and are more than have ids.
        OSError: the file system refuses.
    """
    num_edges, num_vertices = facts.num_edges, facts.num_vertices
    require_ids_for(shape.values, num_edges)
    ids = shape.ids and edge_ids_fit(num_edges)
    stored: dict[str, Values] = {}
    if ids and not (shape.keeps_all and facts.ascending):
        stored[_IDS] = Values(np.dtype(np.int32))
    stored |= {f"{_PREFIX}{name}": kept for name, kept in shape.values.items()}
    columns: dict[str, _Column] = {}
    for name, kept in {"indices": Values(np.dtype(np.int32)), **stored}.items():
        columns[name] = (
            archive.open(name, kept.dtype, (num_edges, *kept.row))
            if shape.keeps_all
            else _Spool(folder / name, kept.dtype)
        )
    rows = _Offsets(archive.open("indptr", np.dtype(np.int64), (num_vertices + 1,)))
    looped = written = 0
    forward = backward = 0
    check = not shape.symmetrise and (facts.balanced or not shape.keeps_all)
    in_order, reversed_some, last_loop = True, False, -1
    for kept, taken in _kept_edges(sort, shape):
        sources = (kept.keys >> 32).astype(np.int32)
        targets = ((kept.keys & 0xFFFFFFFF) >> 1).astype(np.int32)
        reverse = kept.keys & 1
        rows.add(sources)
        columns["indices"].write(targets)
        for name, column in columns.items():
            if kept.values is not None and name.startswith(_PREFIX) and name != _IDS:
                column.write(np.ascontiguousarray(kept.values[name]))
        if _IDS in columns:
            assert kept.values is not None
            given = kept.values[_ID] if shape.values else kept.values
            numbers = given.astype(np.int64) + reverse * num_edges
            columns[_IDS].write(numbers.astype(np.int32))
            in_order = in_order and bool((numbers == np.arange(written, written + len(numbers))).all())
        reversed_some = reversed_some or bool(reverse.any())
        loops = sources[sources == targets]
        if len(loops):
            looped += int(np.count_nonzero(np.diff(loops, prepend=last_loop)))
            last_loop = int(loops[-1])
        if check:
            there, back = pair_fingerprint(sources, targets)
            forward, backward = forward + there, backward + back
        written += len(sources)
        yield taken
    rows.finish(num_vertices)
    symmetric = shape.symmetrise or (check and forward % 2**64 == backward % 2**64)
    if reversed_some:
        require_ids_for(shape.values, 2 * num_edges)
        ids = ids and edge_ids_fit(2 * num_edges)
    for name, column in columns.items():
        if isinstance(column, _Spool):
            if name != _IDS or (ids and not in_order):
                row = stored[name].row if name in stored else ()
                column.copy_to(archive.open(name, column.dtype, (written, *row)), row)
            column.remove()
    archive.add("directed", np.array(not symmetric))
    self_loops = "none" if not looped else "all" if looped == num_vertices else "some"
    archive.add("self_loops", np.array(self_loops))
    yield Made(written, symmetric, self_loops, ids)


def _kept_edges(sort: ExternalSort, shape: Shape) -> Iterator[tuple[Records, int]]:
    """The records that become edges, few at a time, with how many were taken from the sort."""
    taken = 0
    for part in _whole_groups(sort.chunks(), shape):
        taken += len(part.keys)
        kept = _edges(part, shape)
        for start, stop in spans(len(kept.keys)):
            yield kept.part(start, stop), taken


def _whole_groups(chunks: Iterator[Records], shape: Shape) -> Iterator[Records]:
    """Sorted records, cut so that those of one pair of vertices come together."""
    if shape.keeps_all:
        yield from chunks
        return
    held: Records | None = None
    for chunk in chunks:
        pairs = chunk.keys >> 1
        start = int(np.searchsorted(pairs, pairs[-1]))
        if held is not None and (start or held.keys[-1] >> 1 != pairs[0]):
            yield _joined(held, chunk.part(0, start))
            held = None
        elif start:
            yield chunk.part(0, start)
        held = _joined(held, chunk.part(start, len(chunk.keys)))
        if shape.coalesce != "sum":  # then the first is all that is needed
            held = held.part(0, 1)
    if held is not None:
        yield held


def _joined(first: Records | None, then: Records) -> Records:
    """A copy of both."""
    parts = [then] if first is None else [first, then]
    values = [part.values for part in parts if part.values is not None]
    return Records(np.concatenate([part.keys for part in parts]), np.concatenate(values) if values else None)


def _edges(part: Records, shape: Shape) -> Records:
    """Of whole groups of records those that become edges, with the values that they get."""
    if shape.keeps_all:
        return part
    keys, values = part
    if shape.coalesce == "sum":
        starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
        assert values is not None
        summed = values[starts]
        for name in shape.values:
            field = f"{_PREFIX}{name}"
            # The same call on the same numbers as `transform.coalesce`, and so the same bits.
            column = np.ascontiguousarray(values[field])
            summed[field] = np.add.reduceat(column, starts, axis=0, dtype=column.dtype)
        keys, values = keys[starts], summed
    # An edge that was given comes before the reverse of another, and of each kind the first before later ones.
    first = np.concatenate([[True], keys[1:] >> 1 != keys[:-1] >> 1])
    return Records(keys[first], None if values is None else values[first])


class _Column(Protocol):
    """Where a column of the archive goes."""

    def write(self, rows: np.ndarray) -> None: ...


@final
class _Spool:
    """A column on disk whose length is not known yet."""

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self._path, self.dtype = path, dtype
        with named(path):
            self._file = path.open("wb+")

    def write(self, rows: np.ndarray) -> None:
        """Adds rows."""
        with named(self._path):
            self._file.write(rows.reshape(-1).view(np.uint8).data)

    def copy_to(self, column: ArrayWriter, row: tuple[int, ...]) -> None:
        """Moves all rows into the archive."""
        size = math.prod(row)
        with named(self._path):
            self._file.seek(0)
            while len(piece := np.fromfile(self._file, self.dtype, max(1, _PIECE // size) * size)):
                column.write(piece.reshape(-1, *row))

    def remove(self) -> None:
        """Gives the disk back."""
        self._file.close()
        self._path.unlink()


@final
class _Offsets:
    """Where the rows of each source begin, of sources that come in order."""

    def __init__(self, column: ArrayWriter) -> None:
        self._column = column
        self._next = self._before = 0

    def add(self, sources: Int32[np.ndarray, " n"]) -> None:
        """Takes the sources of some edges."""
        last = int(sources[-1])
        for start, stop in spans(last + 1 - self._next):
            rows = np.arange(self._next + start, self._next + stop, dtype=np.int32)
            self._column.write(np.searchsorted(sources, rows).astype(np.int64) + self._before)
        self._next = last + 1
        self._before += len(sources)

    def finish(self, num_vertices: int) -> None:
        """Writes those of the vertices that are left, and the end."""
        for start, stop in spans(num_vertices + 1 - self._next):
            self._column.write(np.full(stop - start, self._before))
