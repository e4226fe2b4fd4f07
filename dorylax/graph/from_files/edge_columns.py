"""From the table `edges` to the arrays of a folder: vertex numbers, one sort in DuckDB, and equal edges in NumPy.

The sort key holds source, target, and whether an edge is the reverse of a given one; ties are broken by the position of the
edge in the files, which is its id. The arrays are those of `Graph.from_coo`, `coalesce`, `symmetrise` and `save` of the
same edges, whatever the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Int64

from dorylax.graph.array_folder import FolderWriter
from dorylax.graph.array_names import EDGE_IDS, EDGE_PREFIX, ORIGINAL_IDS
from dorylax.graph.assemble import pair_fingerprint
from dorylax.graph.from_files.columns import EdgeFile, Values, value_columns
from dorylax.graph.from_files.database import Database
from dorylax.graph.from_files.text import Ids
from dorylax.graph.rows import edge_ids_fit, spans
from dorylax.graph.transform import require_ids_for, sums_of_runs, wider
from dorylax.graph.validate import MAX_VERTICES, GraphError

_LONGEST = 1024  # bytes of a name: the array holds every name as long as the longest


class Shape(NamedTuple):
    """Values of edges under their names, whether edges have ids, and the treatment of equal and reverse edges."""

    values: Mapping[str, Values]
    ids: bool = True
    coalesce: Literal[False, "first", "sum"] = False
    symmetrise: bool = False

    @property
    def keeps_all(self) -> bool:
        """Whether all given edges are kept, and no others."""
        return not (self.coalesce or self.symmetrise)


class _Records(NamedTuple):
    """Edges in order of their keys int64 `[n]`, with positions in the files int64 `[n]`, and values `[n, …]`."""

    keys: Int64[np.ndarray, " n"]
    ids: Int64[np.ndarray, " n"]
    values: dict[str, np.ndarray]

    def take(self, which: Any) -> _Records:
        return _Records(self.keys[which], self.ids[which], {name: array[which] for name, array in self.values.items()})

    def then(self, other: _Records) -> _Records:
        values = {name: np.concatenate([array, other.values[name]]) for name, array in self.values.items()}
        keys, ids = (np.concatenate(both) for both in zip(self[:2], other[:2], strict=True))
        return _Records(keys, ids, values)


def number_vertices(
    database: Database,
    files: Sequence[EdgeFile],
    ids: Ids,
    *,
    more: Sequence[str],
    known: int | None,
    values: Mapping[str, Values],
) -> int:
    """Make the table `numbered` of edges by vertex numbers, and the table `ids` of ids and their numbers; return V.

    Integers are numbered in ascending order. Names are numbered as they first occur in the edges, the source of an edge
    before its target, and then in tables of vertices. The table `edges` is dropped.

    Args:
        database: Has the table `edges`.
        files: Files of edges that have been loaded.
        ids: Kind of the ends of edges.
        more: Queries for (id, row) of tables of vertices.
        known: V where the user or a file states it, else None.
        values: Values of edges under their names.

    Raises:
        GraphError: There are too many vertices, or an end is out of range or not a permitted name.
    """
    columns = "".join(f", {column}" for column in value_columns(values))
    if ids == "numbers":
        count = _checked_range(database, files, more, known)
        database.run(f"CREATE VIEW numbered AS SELECT s, t, rowid AS id{columns} FROM edges")
        database.run(f"CREATE VIEW ids AS SELECT range AS id, range AS number FROM range({count})")
        return count
    places = ["SELECT s AS id, 2 * rowid AS place FROM edges", "SELECT t, 2 * rowid + 1 FROM edges"]
    places += [f"SELECT id, {(k + 1) << 40} + row FROM ({query})" for k, query in enumerate(more)]
    database.run(
        f"CREATE TABLE ids AS SELECT id, row_number() OVER (ORDER BY {'min(place)' if ids == 'names' else 'id'}) - 1 "
        f"AS number FROM ({' UNION ALL '.join(places)}) GROUP BY id"
    )
    count = int(database.value("SELECT count(*) FROM ids"))
    if count > MAX_VERTICES:
        raise GraphError(f"there are {count:,} vertices, and at most {MAX_VERTICES:,} can be numbered (int32)")
    if ids == "names":
        _check_names(database, files)
    database.run(
        f"CREATE TABLE numbered AS SELECT a.number AS s, b.number AS t, edges.rowid AS id{columns} FROM edges "
        "JOIN ids a ON edges.s = a.id JOIN ids b ON edges.t = b.id"
    )
    database.run("DROP TABLE edges")
    return count


def write_ids(database: Database, folder: FolderWriter, ids: Ids, num_vertices: int) -> None:
    """Write the user's ids of the vertices, in order of their numbers."""
    if ids == "numbers":
        return
    dtype = np.dtype(np.int64)
    if ids == "names":
        dtype = np.dtype(f"S{max(1, database.value('SELECT max(strlen(id)) FROM ids') or 1)}")
    column = folder.open(ORIGINAL_IDS, dtype, (num_vertices,))
    for chunk in database.chunks("SELECT id FROM ids ORDER BY number"):
        found = chunk["id"]
        column.write(found if ids == "integers" else np.array([one.encode() for one in found.tolist()], dtype))


def write_edges(
    folder: FolderWriter,
    database: Database,
    shape: Shape,
    told: Callable[[float], object],
    *,
    num_vertices: int,
    num_given: int,
) -> tuple[int, bool, str, bool]:
    """Write the arrays of a graph from the table `numbered`; `told` is called with the finished share.

    Returns the number of edges, whether each comes with its reverse, which vertices have self-loops, whether edges have
    ids.

    Raises a GraphError if edges have values and are more than have ids, or a sum exceeds its type.
    """
    require_ids_for(shape.values, num_given)
    with_ids = shape.ids and edge_ids_fit(num_given)
    indices = folder.open("indices", np.dtype(np.int32), (None,))
    columns = {
        name: folder.open(f"{EDGE_PREFIX}{name}", one.dtype, (None, *one.row)) for name, one in shape.values.items()
    }
    edge_ids = folder.open(EDGE_IDS, np.dtype(np.int32), (None,)) if with_ids else None
    offsets = folder.open("indptr", np.dtype(np.int64), (num_vertices + 1,))
    next_row = written = taken = looped = forward = backward = 0
    last_loop, in_order, some_reversed = -1, True, False
    for part in _whole_groups(_sorted(database, shape), shape):
        taken += len(part.keys)
        kept = part if shape.keeps_all else _kept(part, shape)
        for start, stop in spans(len(kept.keys)):
            keys, ids, values = kept.take(slice(start, stop))
            sources, targets = (keys >> 32).astype(np.int32), ((keys & 0xFFFFFFFF) >> 1).astype(np.int32)
            end = int(sources[-1]) + 1
            for first, last in spans(end - next_row):
                rows = np.arange(next_row + first, next_row + last, dtype=np.int32)
                offsets.write(np.searchsorted(sources, rows).astype(np.int64) + written)
            next_row = end
            indices.write(targets)
            for name, array in values.items():
                columns[name].write(array)
            if edge_ids is not None:
                ids = ids + (keys & 1) * num_given
                edge_ids.write(ids.astype(np.int32))
                in_order = in_order and bool((ids == np.arange(len(ids)) + written).all())
            some_reversed = some_reversed or bool((keys & 1).any())
            if len(loops := sources[sources == targets]):
                looped += int(np.count_nonzero(np.diff(loops, prepend=last_loop)))
                last_loop = int(loops[-1])
            if not shape.symmetrise:
                one, other = pair_fingerprint(sources, targets)
                forward, backward = forward + one, backward + other
            written += len(keys)
        told(taken / max(1, num_given * (1 + shape.symmetrise)))
    for first, last in spans(num_vertices + 1 - next_row):
        offsets.write(np.full(last - first, written))
    if some_reversed:
        require_ids_for(shape.values, 2 * num_given)
    has_ids = with_ids and edge_ids_fit(num_given * (1 + some_reversed))
    if with_ids and (in_order or not has_ids):
        folder.drop(EDGE_IDS)
    symmetric = shape.symmetrise or forward % 2**64 == backward % 2**64
    self_loops = "none" if not looped else "all" if looped == num_vertices else "some"
    folder.add("directed", np.array(not symmetric))
    folder.add("self_loops", np.array(self_loops))
    return written, symmetric, self_loops, has_ids


def _sorted(database: Database, shape: Shape) -> Iterator[_Records]:
    values = "".join(f", {column}" for column in value_columns(shape.values))
    records = f"SELECT (s << 32) | (t << 1) AS key, id{values} FROM numbered"
    if shape.symmetrise:
        records += f" UNION ALL SELECT (t << 32) | (s << 1) | 1, id{values} FROM numbered WHERE s <> t"
    for chunk in database.chunks(f"SELECT * FROM ({records}) ORDER BY key, id"):
        found, first = {}, 0
        for name, kept in shape.values.items():
            with np.errstate(over="ignore"):  # infinite values are allowed, or have been refused
                parts = [chunk[f"v{k}"].astype(kept.dtype) for k in range(first, first + kept.size)]
            first += kept.size
            found[name] = np.stack(parts, axis=1).reshape(-1, *kept.row) if kept.row else parts[0]
        yield _Records(chunk["key"], chunk["id"], found)


def _whole_groups(parts: Iterator[_Records], shape: Shape) -> Iterator[_Records]:
    """Cut sorted records so that those of one pair of vertices come together."""
    if shape.keeps_all:
        yield from parts
        return
    held: _Records | None = None
    for part in parts:
        joined = part if held is None else held.then(part)
        pairs = joined.keys >> 1
        start = int(np.searchsorted(pairs, pairs[-1]))
        if start:
            yield joined.take(slice(0, start))
        # Without sums the first of a pair is the only one needed.
        held = joined.take(slice(start, None if shape.coalesce == "sum" else start + 1))
    if held is not None:
        yield held


def _kept(part: _Records, shape: Shape) -> _Records:
    """Return the records of whole groups that become edges, with their values."""
    if shape.coalesce == "sum":
        starts = np.flatnonzero(np.concatenate([[True], part.keys[1:] != part.keys[:-1]]))
        values = {}
        for name, array in part.values.items():
            values[name], wrong = sums_of_runs(array, starts)
            if wrong is not None:
                key = int(part.keys[starts[wrong]])
                ends = key >> 32, (key & 0xFFFFFFFF) >> 1
                source, target = reversed(ends) if key & 1 else ends
                dtype = wider(array.dtype)
                raise GraphError(
                    f"--coalesce sum: the sum of {name} over the edges {source} → {target} exceeds {array.dtype}: "
                    + ("scale the values" if dtype is None else f"--values {name}:{dtype}")
                )
        part = _Records(part.keys[starts], part.ids[starts], values)
    # A given edge comes before the reverse of another, and of each kind the first before later ones.
    return part.take(np.concatenate([[True], part.keys[1:] >> 1 != part.keys[:-1] >> 1]))


def _checked_range(database: Database, files: Sequence[EdgeFile], more: Sequence[str], known: int | None) -> int:
    limit = MAX_VERTICES if known is None else known
    wrong = f"least(s, t) < 0 OR greatest(s, t) >= {limit}"
    lowest, highest = database.rows("SELECT min(least(s, t)), max(greatest(s, t)) FROM edges")[0]
    if lowest is not None and (lowest < 0 or highest >= limit):
        row, *ends = database.rows(f"SELECT rowid, s, t FROM edges WHERE {wrong} ORDER BY rowid LIMIT 1")[0]
        end, number = next((end, k) for end, k in zip(("source", "target"), ends, strict=True) if not 0 <= k < limit)
        fault = "negative" if number < 0 else "out of range"
        owner = "the most that int32 numbers" if known is None else "num_vertices"
        raise GraphError(
            f"{_where(database, files, row)}: {end} {number} is {fault}: must be ≥ 0 and < {owner} = {limit}; "
            "--ids integers takes any"
        )
    for query in more:
        lowest, most = database.rows(f"SELECT min(id), max(id) FROM ({query})")[0]
        if lowest is not None and (lowest < 0 or most >= limit):
            raise GraphError(
                f"a table of vertices has the key {lowest if lowest < 0 else most}: must be ≥ 0 and < {limit}"
            )
        highest = max(highest or 0, -1 if most is None else most)
    return known if known is not None else 0 if highest is None else int(highest) + 1


def _check_names(database: Database, files: Sequence[EdgeFile]) -> None:
    wrong = f"contains(id, chr(0)) OR strlen(id) > {_LONGEST}"
    found = database.value(f"SELECT id FROM ids WHERE {wrong} ORDER BY number LIMIT 1")
    if found is None:
        return
    fault = "contains NUL" if "\0" in found else f"has {len(found.encode()):,} bytes: at most {_LONGEST:,} are taken"
    ends = f"(SELECT id FROM ids WHERE {wrong})"
    row = database.value(f"SELECT min(rowid) FROM edges WHERE s IN {ends} OR t IN {ends}")
    place = "a table of vertices" if row is None else _where(database, files, row)
    raise GraphError(f"{place} has a name that {fault}: rename that vertex")


def _where(database: Database, files: Sequence[EdgeFile], row: int) -> str:
    for file in files:
        if row < file.count:
            return file.where(database, row)
        row -= file.count
    raise IndexError(row)
