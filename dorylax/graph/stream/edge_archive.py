"""From edges in any order to the rows of an archive: records that are sorted on disk, then made edges and written.

A record's key holds source, target, and whether it is the reverse of an edge that was given; its values are the edge's
position in what was given, which is its id, and what it carries. What comes out is what `Graph.from_coo`, `coalesce`,
`symmetrise` and `save_npz` make of the same edges, array for array.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, final

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
    held: Any = None
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
    columns = _Edges(archive, shape, facts, folder)
    try:
        for kept, taken in _kept_edges(sort, shape):
            columns.add(kept)
            yield taken
        yield columns.finish()
    finally:
        columns.remove()


@final
class _Edges:
    """The columns of edges in an archive, and what shows of the graph while they are written."""

    def __init__(self, archive: ArchiveWriter, shape: Shape, facts: Facts, folder: Path) -> None:
        self._archive, self._shape, self._facts = archive, shape, facts
        require_ids_for(shape.values, facts.num_edges)
        self._ids = shape.ids and edge_ids_fit(facts.num_edges)
        kinds = {"indices": Values(np.dtype(np.int32))}
        if self._ids and not (shape.keeps_all and facts.ascending):
            kinds[_IDS] = Values(np.dtype(np.int32))
        kinds |= {f"{_PREFIX}{name}": values for name, values in shape.values.items()}
        self._columns: dict[str, ArrayWriter | _Spool] = {}
        for name, kind in kinds.items():
            if shape.keeps_all:
                self._columns[name] = archive.open(name, kind.dtype, (facts.num_edges, *kind.row))
            else:
                self._columns[name] = _Spool(folder / name, kind)
        self._rows = _Offsets(archive.open("indptr", np.dtype(np.int64), (facts.num_vertices + 1,)))
        # Of a graph that has its reverse edges, or cannot have, nothing needs to be found out.
        self._compares = not shape.symmetrise and (facts.balanced or not shape.keeps_all)
        self._written = self._looped = 0
        self._last_loop = -1
        self._forward = self._backward = 0
        self._in_order, self._reversed_some = True, False

    def add(self, kept: Records) -> None:
        """Takes the next edges in order."""
        sources = (kept.keys >> 32).astype(np.int32)
        targets = ((kept.keys & 0xFFFFFFFF) >> 1).astype(np.int32)
        reverse = kept.keys & 1
        self._rows.add(sources)
        self._columns["indices"].write(targets)
        for name in self._shape.values:
            assert kept.values is not None
            self._columns[f"{_PREFIX}{name}"].write(np.ascontiguousarray(kept.values[f"{_PREFIX}{name}"]))
        if _IDS in self._columns:
            assert kept.values is not None
            places = kept.values[_ID] if self._shape.values else kept.values
            ids = places.astype(np.int64) + reverse * self._facts.num_edges
            self._columns[_IDS].write(ids.astype(np.int32))
            self._in_order = self._in_order and bool((ids == np.arange(len(ids)) + self._written).all())
        self._reversed_some = self._reversed_some or bool(reverse.any())
        if len(loops := sources[sources == targets]):
            self._looped += int(np.count_nonzero(np.diff(loops, prepend=self._last_loop)))
            self._last_loop = int(loops[-1])
        if self._compares:
            forward, backward = pair_fingerprint(sources, targets)
            self._forward, self._backward = self._forward + forward, self._backward + backward
        self._written += len(sources)

    def finish(self) -> Made:
        """Writes what shows at the end."""
        num_edges, num_vertices = self._facts.num_edges, self._facts.num_vertices
        self._rows.finish(num_vertices)
        if self._reversed_some:
            require_ids_for(self._shape.values, 2 * num_edges)
            self._ids = self._ids and edge_ids_fit(2 * num_edges)
        for name, column in self._columns.items():
            if isinstance(column, _Spool) and (name != _IDS or (self._ids and not self._in_order)):
                column.copy_to(self._archive, name, self._written)
                column.remove()
        same = self._compares and self._forward % 2**64 == self._backward % 2**64
        symmetric = self._shape.symmetrise or same
        self_loops = "none" if not self._looped else "all" if self._looped == num_vertices else "some"
        self._archive.add("directed", np.array(not symmetric))
        self._archive.add("self_loops", np.array(self_loops))
        return Made(self._written, symmetric, self_loops, self._ids)

    def remove(self) -> None:
        """Gives the disk back that is for a while."""
        for column in self._columns.values():
            if isinstance(column, _Spool):
                column.remove()


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


@final
class _Spool:
    """A column on disk whose length is not known yet."""

    def __init__(self, path: Path, kind: Values) -> None:
        self._path, self._kind = path, kind
        with named(path):
            self._file = path.open("wb+")

    def write(self, rows: np.ndarray) -> None:
        """Adds rows."""
        with named(self._path):
            self._file.write(rows.reshape(-1).view(np.uint8).data)

    def copy_to(self, archive: ArchiveWriter, name: str, num_rows: int) -> None:
        """Makes an array of an archive of all rows."""
        dtype, row = self._kind
        column = archive.open(name, dtype, (num_rows, *row))
        size = math.prod(row)
        with named(self._path):
            self._file.seek(0)
            while len(piece := np.fromfile(self._file, dtype, max(1, _PIECE // size) * size)):
                column.write(piece.reshape(-1, *row))

    def remove(self) -> None:
        """Gives the disk back."""
        self._file.close()
        self._path.unlink(missing_ok=True)


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
