"""From the tables of edges to the arrays of a folder: vertex numbers, one sort in DuckDB, and equal edges in NumPy.

The sort key holds source, target, and whether an edge is the reverse of a given one; ties are broken by the position of the
edge in the files, which is its id. The arrays are those of `Graph.from_coo`, `coalesce`, `symmetrise` and `save` of the
same edges, whatever the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Literal, NamedTuple

import numpy as np

from dorylax.graph.array_folder import FolderWriter
from dorylax.graph.array_names import EDGE_IDS, EDGE_PREFIX, ORIGINAL_IDS
from dorylax.graph.compressed import pair_fingerprint
from dorylax.graph.from_files.database import Database
from dorylax.graph.from_files.edge_files import EdgeFile, num_numbers
from dorylax.graph.from_files.text import Ids
from dorylax.graph.rows import edge_ids_fit, spans
from dorylax.graph.transform import require_ids_for, sums_of_runs, wider
from dorylax.graph.validate import MAX_VERTICES, GraphError

_LONGEST = 1024  # bytes of a name: the array holds every name as long as the longest


class Shape(NamedTuple):
    """Types of the values of edges under their names, whether edges have ids, and the treatment of equal edges."""

    values: Mapping[str, np.dtype[Any]]
    ids: bool = True
    coalesce: Literal[False, "first", "sum"] = False
    symmetrise: bool = False


def number_vertices(
    database: Database,
    files: Sequence[EdgeFile],
    ids: Ids,
    *,
    given: Mapping[str, Sequence[str]],
    more: Sequence[str],
    known: int | None,
) -> int:
    """Make the table `numbered` of edges by vertex numbers, and the table `ids` of ids and their numbers; return V.

    Integers are numbered in ascending order. Names are numbered as they first occur in the edges, the source of an edge
    before its target, and then in tables of vertices. The tables of the files are dropped.

    Args:
        database: Has the tables of the files.
        files: Files of edges that have been loaded.
        ids: Kind of the ends of edges.
        given: Tables of further values of the edges, in order, with their columns.
        more: Queries for (id, row) of tables of vertices.
        known: V where the user or a file states it, else None.

    Raises:
        GraphError: There are too many vertices, or an end is out of range or not a permitted name.
    """
    firsts = accumulate((file.count for file in files), initial=0)
    parts = (f"SELECT *, rowid + {first} AS id FROM {file.table}" for file, first in zip(files, firsts, strict=False))
    database.rows(f"CREATE VIEW edges AS {' UNION ALL '.join(parts)}")
    columns = [f"v{k}" for k in range(num_numbers(files[0].values))]
    columns += [f"{table}.{column}" for table, own in given.items() for column in own]
    joins = "".join(f" JOIN {table} ON edges.id = {table}.rowid" for table in given)
    values = "".join(f", {column}" for column in columns)
    if ids == "numbers":
        count = _checked_range(database, files, more, known)
        database.rows(f"CREATE VIEW numbered AS SELECT s, t, edges.id{values} FROM edges{joins}")
        database.rows(f"CREATE VIEW ids AS SELECT range AS id, range AS number FROM range({count})")
        return count
    places = ["SELECT s AS id, 2 * id AS place FROM edges", "SELECT t, 2 * id + 1 FROM edges"]
    places += [f"SELECT id, {(k + 1) << 40} + row FROM ({query})" for k, query in enumerate(more)]
    number = f"row_number() OVER (ORDER BY {'min(place)' if ids == 'names' else 'id'}) - 1 AS number"
    database.make("ids", f"SELECT id, {number} FROM ({' UNION ALL '.join(places)}) GROUP BY id")
    count = int(database.value("SELECT count(*) FROM ids"))
    if count > MAX_VERTICES:
        raise GraphError(f"there are {count:,} vertices, and at most {MAX_VERTICES:,} can be numbered (int32)")
    if ids == "names":
        _check_names(database, files)
    ends = "JOIN ids a ON edges.s = a.id JOIN ids b ON edges.t = b.id"
    database.make("numbered", f"SELECT a.number AS s, b.number AS t, edges.id{values} FROM edges {ends}{joins}")
    database.rows("; ".join(f"DROP TABLE {table}" for table in (*(file.table for file in files), *given)))
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
    on_progress: Callable[[float], object],
    *,
    num_vertices: int,
    num_given: int,
) -> tuple[int, bool, str, bool]:
    """Write the arrays of a graph from the table `numbered`; `on_progress` is called with the finished share.

    Returns the number of edges, whether each comes with its reverse, which vertices have self-loops, whether edges have
    ids.

    Raises a GraphError if edges have values and are more than have ids, or a sum exceeds its type.
    """
    require_ids_for(shape.values, num_given)
    with_ids = shape.ids and edge_ids_fit(num_given)
    indices = folder.open("indices", np.dtype(np.int32), (None,))
    columns = {
        name: folder.open(f"{EDGE_PREFIX}{name}", one.base, (None, *one.shape)) for name, one in shape.values.items()
    }
    edge_ids = folder.open(EDGE_IDS, np.dtype(np.int32), (None,)) if with_ids else None
    offsets = folder.open("indptr", np.dtype(np.int64), (num_vertices + 1,))
    next_row = written = taken = forward = backward = 0
    in_order, some_reversed = True, False
    keeps_all = not (shape.coalesce or shape.symmetrise)
    parts = _sorted(database, shape)
    for part in parts if keeps_all else _whole_groups(parts, all_needed=shape.coalesce == "sum"):
        taken += len(part)
        kept = part if keeps_all else _kept(part, shape)
        for start, stop in spans(len(kept)):
            records = kept[start:stop]
            keys, ids = records["key"], records["id"]
            sources, targets = (keys >> 32).astype(np.int32), ((keys & 0xFFFFFFFF) >> 1).astype(np.int32)
            end = int(sources[-1]) + 1
            for first, last in spans(end - next_row):
                rows = np.arange(next_row + first, next_row + last, dtype=np.int32)
                offsets.write(np.searchsorted(sources, rows).astype(np.int64) + written)
            next_row = end
            indices.write(targets)
            for name, column in columns.items():
                column.write(records[f"of {name}"])
            if edge_ids is not None:
                ids = ids + (keys & 1) * num_given
                edge_ids.write(ids.astype(np.int32))
                in_order = in_order and bool((ids == np.arange(len(ids)) + written).all())
            some_reversed = some_reversed or bool((keys & 1).any())
            if not shape.symmetrise:
                one, other = pair_fingerprint(sources, targets)
                forward, backward = forward + one, backward + other
            written += len(keys)
        on_progress(taken / max(1, num_given * (1 + shape.symmetrise)))
    for first, last in spans(num_vertices + 1 - next_row):
        offsets.write(np.full(last - first, written))
    if some_reversed:
        require_ids_for(shape.values, 2 * num_given)
    has_ids = with_ids and edge_ids_fit(num_given * (1 + some_reversed))
    if with_ids and (in_order or not has_ids):
        folder.drop(EDGE_IDS)
    symmetric = shape.symmetrise or forward % 2**64 == backward % 2**64
    looped = database.value("SELECT count(DISTINCT s) FROM numbered WHERE s = t")
    self_loops = "none" if not looped else "all" if looped == num_vertices else "some"
    folder.add("directed", np.array(not symmetric))
    folder.add("self_loops", np.array(self_loops))
    return written, symmetric, self_loops, has_ids


def _sorted(database: Database, shape: Shape) -> Iterator[np.ndarray]:
    """Yield records of edges in order of their keys: key and position in the files, int64, and values `of` each name."""
    dtype = np.dtype([("key", "i8"), ("id", "i8"), *((f"of {name}", kept) for name, kept in shape.values.items())])
    values = "".join(f", v{k}" for k in range(num_numbers(shape.values)))
    records = f"SELECT (s << 32) | (t << 1) AS key, id{values} FROM numbered"
    if shape.symmetrise:
        records += f" UNION ALL SELECT (t << 32) | (s << 1) | 1, id{values} FROM numbered WHERE s <> t"
    for chunk in database.chunks(f"SELECT * FROM ({records}) ORDER BY key, id"):
        found, columns = np.empty(len(chunk["key"]), dtype), iter(chunk.values())
        with np.errstate(over="ignore"):  # infinite values are allowed, or have been refused
            for name in dtype.names or ():
                field = found[name].reshape(len(found), -1)
                for k in range(field.shape[1]):
                    field[:, k] = next(columns)
        yield found


def _whole_groups(parts: Iterator[np.ndarray], *, all_needed: bool) -> Iterator[np.ndarray]:
    """Cut sorted records so that those of one pair of vertices come together, or the first of them if not all are needed."""
    held: np.ndarray | None = None
    for part in parts:
        joined = part if held is None else np.concatenate([held, part])
        pairs = joined["key"] >> 1
        start = int(np.searchsorted(pairs, pairs[-1]))
        if start:
            yield joined[:start]
        held = joined[start:] if all_needed else joined[start : start + 1]
    if held is not None:
        yield held


def _kept(part: np.ndarray, shape: Shape) -> np.ndarray:
    """Return the records of whole groups that become edges, with their values."""
    if shape.coalesce == "sum":
        starts = np.flatnonzero(np.diff(part["key"], prepend=-1))
        sums = part[starts]
        for name in shape.values:
            sums[f"of {name}"], wrong = sums_of_runs(part[f"of {name}"], starts)
            if wrong is not None:
                key = int(sums["key"][wrong])
                ends = key >> 32, (key & 0xFFFFFFFF) >> 1
                source, target = reversed(ends) if key & 1 else ends
                held = shape.values[name].base
                dtype = wider(held)
                raise GraphError(
                    f"--coalesce sum: the sum of {name} over the edges {source} → {target} exceeds {held}: "
                    + ("scale the values" if dtype is None else f"--values {name}:{dtype}")
                )
        part = sums
    # A given edge comes before the reverse of another, and of each kind the first before later ones.
    return part[np.flatnonzero(np.diff(part["key"] >> 1, prepend=-1))]


def _checked_range(database: Database, files: Sequence[EdgeFile], more: Sequence[str], known: int | None) -> int:
    limit = MAX_VERTICES if known is None else known
    wrong = f"least(s, t) < 0 OR greatest(s, t) >= {limit}"
    lowest, highest = database.rows("SELECT min(least(s, t)), max(greatest(s, t)) FROM edges")[0]
    if lowest is not None and (lowest < 0 or highest >= limit):
        row, *ends = database.rows(f"SELECT id, s, t FROM edges WHERE {wrong} ORDER BY id LIMIT 1")[0]
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
    row = database.value(f"SELECT min(id) FROM edges WHERE s IN {ends} OR t IN {ends}")
    place = "a table of vertices" if row is None else _where(database, files, row)
    raise GraphError(f"{place} has a name that {fault}: rename that vertex")


def _where(database: Database, files: Sequence[EdgeFile], row: int) -> str:
    for file in files:
        if row < file.count:
            return file.where(database, row)
        row -= file.count
    raise IndexError(row)
