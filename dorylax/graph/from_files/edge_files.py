"""Files of edges, a table each: formats, roles and types of the columns, and the reading of the rows.

The table has the columns s and t, the ends of an edge as BIGINT or VARCHAR, and v0, v1, … for the numbers of its values.
`rowid` is the position of an edge in the file. The type of values is a dtype with the shape of one edge's values.
"""

from __future__ import annotations

import contextlib
import gzip
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np

from dorylax.graph.from_files.database import Database
from dorylax.graph.from_files.tables import ArrayTable, Table, TextTable, open_table, stored_array
from dorylax.graph.from_files.text import COMMENTS, INTEGER, NUMBER, Ids, Wanted, packed_as, suffix_of
from dorylax.graph.stored import open_arrays
from dorylax.graph.validate import GraphError
from dorylax.near_matches import did_you_mean

ALLOW = "--allow-nonfinite takes such values"
_STORED = {"f": "DOUBLE", "i": "BIGINT", "u": "UBIGINT", "b": "BOOLEAN"}
_LIMITS = {2: 65520.0, 4: 3.4028235677973366e38, 8: math.inf}  # values that round to infinity, by bytes


def roles(shown_as: str, columns: Sequence[str], wanted: Wanted) -> tuple[str, str, dict[str, np.dtype[Any] | None]]:
    """Return the columns of sources, targets and values. Raises a GraphError if there is no such column."""
    known = [one for one in columns if one != "-"]
    repeated = [one for one in known if known.count(one) > 1]
    if repeated:
        raise GraphError(f"{shown_as}: two columns are called {repeated[0]!r}: name them by --columns")
    usual = ("source", "target") if {"source", "target"} <= set(known) else tuple(known[:2])
    if len(usual) < 2:
        raise GraphError(
            f"{shown_as} has {len(known)} column{'s' * (len(known) != 1)}: edges have a source and a target"
        )
    source, target = wanted.source or usual[0], wanted.target or usual[1]
    values = wanted.values
    if values is None:
        values = dict.fromkeys((one for one in known if one not in (source, target)), None)
    for one in (source, target, *values):
        if one not in known:
            raise GraphError(f"{shown_as} has no column {one!r}: {did_you_mean(one, known)}")
    if source == target:
        raise GraphError(f"{shown_as}: sources and targets are both column {source!r}: say --source and --target")
    return source, target, dict(values)


def checked_values(what: str, stored: np.dtype[Any], dtype: np.dtype[Any] | None = None) -> np.dtype[Any]:
    """Return the type that values are kept in.

    Raises a GraphError if they are no real numbers or truth values, or there are none for an edge.
    """
    if 0 in stored.shape:
        raise GraphError(f"{what} has {list(stored.shape)} numbers per edge: expected at least one")
    if stored.base.kind not in "fiub":
        raise GraphError(f"{what} must be real numbers, got {stored.base}: --values says which columns to take")
    return np.dtype(((dtype or stored.base).newbyteorder("="), stored.shape))


def num_numbers(values: Mapping[str, np.dtype[Any]]) -> int:
    """Return the numbers of values per edge, and so of the columns v0, v1, …."""
    return sum(math.prod(kept.shape) for kept in values.values())


@final
class EdgeFile:
    """A file of edges: a table whose columns have roles.

    Attributes:
        shown: Its name in messages.
        described: Detected layout, with the options that override it.
        values: Types of the values of its edges under their names.
        estimate: Approximate number of edges.
        table: Name of the table of its edges, once they are loaded.
        count: Number of edges, known once they are loaded.
        num_vertices: V where the file states it, else None.
        largest: Largest vertex number among the first rows; -1 if unknown.
    """

    def __init__(self, table: Table, wanted: Wanted) -> None:
        shown = table.shown
        if isinstance(table, TextTable) and table.names is None:
            if table.width not in (0, 2):
                raise GraphError(
                    f"{shown} has {table.width} column{'s' * (table.width != 1)}, expected 2: say what they are, as "
                    "--columns source,target,weight (- skips one), or --header if its first line does"
                )
            table.names = ("source", "target")
        source, target, values = roles(shown, table.names or (), wanted)
        for column in (source, target) if table.dtypes and wanted.ids != "names" else ():
            if (kind := table.dtypes[column].kind) not in "iu":
                stored = table.types.get(column, str(table.dtypes[column]))
                advice = ": --ids names if vertices have names" if stored == "VARCHAR" or kind in "SUT" else ""
                raise GraphError(f"{shown}: {column} must hold integers, got {stored}{advice}")
        self.values = {
            one: checked_values(f"{shown}: {one}", table.dtypes.get(one, np.dtype("f4")), kept)
            for one, kept in values.items()
        }
        told = ", ".join(f"{one} {kept.base}" for one, kept in self.values.items())
        self._table, self._wanted, self._ends = table, wanted, (source, target)
        self.shown, self.estimate, self.num_vertices = shown, table.estimate, table.num_vertices
        self.described = (
            f"{table.described}, sources {source} (--source), targets {target} (--target), "
            f"values {told or 'none'} (--values), vertices are {wanted.ids} (--ids)"
        )
        self.largest, self.count, self.table = -1, 0, ""
        if isinstance(table, TextTable) and wanted.ids == "numbers":
            places = [table.place(one) for one in self._ends]
            ends = [row[k] for row in table.rows for k in places if k < len(row)]
            self.largest = max((int(end) for end in ends if re.fullmatch(r"\d{1,10}", end)), default=-1)

    def load(self, database: Database, into: str, values: Iterable[str]) -> None:
        """Make a table of all edges, with their values in an order. Raises a GraphError if a row or the file is damaged."""
        self.table, table, wanted = into, self._table, self._wanted
        self.values = {one: self.values[one] for one in values}
        load_columns(database, into, table, self.values, wanted, ends=self._ends)
        self.count = int(database.value(f"SELECT count(*) FROM {into}"))
        starts = [name for name, one in zip("st", self._ends, strict=True) if table.place(one) == 0]
        if isinstance(table, TextTable) and wanted.ids == "names" and wanted.comments is None and starts:
            test = " OR ".join(f"starts_with({starts[0]}, '{mark}')" for mark in COMMENTS)
            row = database.value(f"SELECT min(rowid) FROM {into} WHERE {test}")
            if row is not None:
                raise GraphError(
                    f"{self.where(database, row)} may be a comment or an edge: --comments '#%' skips such lines, "
                    "--comments '' reads them"
                )

    def where(self, database: Database, row: int) -> str:
        """Return the place and content of a row, for messages."""
        found = self._table.row(database, row)
        return f"{self.shown}, {found.place}: {found.line}"


def open_edges(database: Database, path: Path, shown_as: str, wanted: Wanted) -> EdgeFile:
    """Open a file of edges in the format that its name and first bytes tell; text if they tell none.

    Raises a GraphError if the file is damaged, or holds no edges.
    """
    suffix, of_array = suffix_of(shown_as), Path(shown_as).suffix
    with path.open("rb") as file:
        start = file.read(16)
    if start.startswith(b"%%MatrixMarket") or suffix == ".mtx":
        return _matrix_market(path, shown_as, wanted)
    if suffix in (".graph", ".metis"):
        raise GraphError(
            f"{shown_as} is a METIS graph by its name, which is not read: convert it to lines of edges, or rename it if it "
            "has such lines"
        )
    if of_array == ".npy":
        return _npy(path, shown_as, wanted)
    if of_array == ".npz":  # errors name the file that is opened
        return _npz(Path(os.readlink(path)) if path.is_symlink() else path, shown_as, wanted)
    return EdgeFile(open_table(database, path, shown_as, wanted), wanted)


def _npy(path: Path, shown_as: str, wanted: Wanted) -> EdgeFile:
    """Open a .npy file with edges `[E, 2]` or `[2, E]`. Raises a GraphError for anything else."""
    array = stored_array(path, shown_as=shown_as)
    if array.ndim != 2 or 2 not in array.shape:
        raise GraphError(f"{shown_as} must be edges [E, 2] or [2, E], got {array.dtype} {list(array.shape)}")
    if array.shape == (2, 2):
        raise GraphError(f"{shown_as} is [2, 2], which may be [E, 2] or [2, E]: give three edges or more, or text")
    if wanted.values:
        raise GraphError(
            f"{shown_as} has no column {next(iter(wanted.values))!r}: --edge-data takes values from a .npy"
        )
    edges = array.T if array.shape[1] == 2 else array
    ends = {"edges[0]": edges[0], "edges[1]": edges[1]}
    return _edges(shown_as, "array of NumPy", ends, {}, wanted)


def _npz(path: Path, shown_as: str, wanted: Wanted) -> EdgeFile:
    """Open an archive of NumPy or a matrix of `scipy.sparse.save_npz`. Raises a GraphError for anything else."""
    with open_arrays(path) as archive:
        names = archive.names
    if {"format", "shape", "data"} <= set(names):
        import scipy.sparse

        return _matrix(scipy.sparse.load_npz(path), "matrix of SciPy", shown_as, wanted)
    given: tuple[str, ...] = ("edge_index",)
    if wanted.source or wanted.target or "edge_index" not in names:
        given = (wanted.source or "sources", wanted.target or "targets")
    found = {one: stored_array(path, one) for one in (wanted.values or {})}
    ends = [stored_array(path, one) for one in given]
    if len(given) == 1:
        if ends[0].ndim != 2 or len(ends[0]) != 2:
            raise GraphError(f"{shown_as}: edge_index has shape {list(ends[0].shape)}, expected [2, E]")
        given, ends = ("edge_index[0]", "edge_index[1]"), list(ends[0])
    for one, array in [*zip(given, ends, strict=True), *found.items()]:
        if array.ndim < 1 or len(array) != len(ends[0]) or (one in given and array.ndim > 1):
            expected = [len(ends[0]), *array.shape[1:]]
            raise GraphError(f"{shown_as}: {one} has shape {list(array.shape)}, expected {expected}, one per edge")
    return _edges(shown_as, "archive of NumPy", dict(zip(given, ends, strict=True)), found, wanted)


def _matrix_market(path: Path, shown_as: str, wanted: Wanted) -> EdgeFile:
    """Read a MatrixMarket file. Raises a GraphError if it is damaged."""
    import scipy.io

    is_packed = packed_as(path, shown_as) == "gzip"
    try:
        with gzip.open(path) if is_packed else path.open("rb") as content:
            has_values = b"pattern" not in content.readline().lower()
        with gzip.open(path) if is_packed else contextlib.nullcontext(str(path)) as content:
            matrix = scipy.io.mmread(content)
    except (ValueError, OverflowError, EOFError, gzip.BadGzipFile) as error:
        raise GraphError(f"{shown_as} is no MatrixMarket file, or is damaged ({error})") from None
    return _matrix(matrix, "MatrixMarket", shown_as, wanted, has_values=has_values)


def _matrix(matrix: Any, kind: str, shown_as: str, wanted: Wanted, *, has_values: bool = True) -> EdgeFile:
    """Edges from rows to columns, as `Graph.from_scipy`."""
    import scipy.sparse

    entries = scipy.sparse.coo_array(matrix)
    if len(entries.shape) != 2 or entries.shape[0] != entries.shape[1]:
        raise GraphError(f"{shown_as} must be a square matrix, [V, V], got {list(entries.shape)}")
    names = ("weight",) if wanted.values is None else tuple(wanted.values)
    if len(names) > has_values:
        if wanted.values is not None:
            raise GraphError(f"{shown_as} has {int(has_values)} values per edge, and --values names {', '.join(names)}")
        names = ()
    ends = dict(zip(("matrix rows", "matrix columns"), entries.coords, strict=True))
    known = entries.shape[0] if wanted.ids == "numbers" else None
    return _edges(shown_as, kind, ends, dict.fromkeys(names, entries.data), wanted, num_vertices=known)


def _edges(
    shown_as: str,
    kind: str,
    ends: Mapping[str, np.ndarray],
    values: Mapping[str, np.ndarray],
    wanted: Wanted,
    *,
    num_vertices: int | None = None,
) -> EdgeFile:
    for one, array in ends.items():
        if wanted.ids == "names" and array.dtype.kind not in "iuSUOT":
            raise GraphError(f"{shown_as}: {one} must hold integers or names, got {array.dtype}")
    (source, target), kept = ends, {one: (wanted.values or {}).get(one) for one in values}
    table = ArrayTable(shown_as, kind, {**ends, **values}, num_vertices)
    return EdgeFile(table, wanted._replace(source=source, target=target, values=kept))


def load_columns(
    database: Database,
    into: str,
    table: Table,
    values: Mapping[str, np.dtype[Any]],
    wanted: Wanted,
    *,
    ends: Sequence[str] = (),
    first: int = 0,
) -> None:
    """Make a table of the rows of a file: its `ends` as the columns s and t, and its values as v`first`, ….

    Raises a GraphError at the first field that is no end, or no number that its type holds.
    """
    numbers = [
        (one, table.place(one) + k, kept.base) for one, kept in values.items() for k in range(math.prod(kept.shape))
    ]
    fields: list[tuple[str, str, int, np.dtype[Any] | None]] = [
        *((name, one, table.place(one), None) for name, one in zip("st", ends, strict=False)),
        *((f"v{number}", *of_value) for number, of_value in enumerate(numbers, first)),
    ]
    chosen = {
        name: _end(f"c{k}", wanted.ids, table)
        if kept is None
        else _number(f"c{k}", kept, wanted, table.dtypes.get(one))
        for name, one, k, kept in fields
    }
    if (bad := table.fill(database, into, chosen, complete=True)) is None:
        return
    row, is_text = table.row(database, bad), isinstance(table, TextTable)
    if is_text and len(row.fields) != table.width:
        found = f"{len(row.fields)} column{'s' * (len(row.fields) != 1)}"
        raise GraphError(f"{table.shown}, {row.place}, has {found}, expected {table.width}: {row.line}{row.advice}")
    fault = "cannot be split into columns (is a quote not closed?)" if is_text else "has a value that is not read"
    advice = ""
    for _, one, k, kept in fields:
        if reason := _reason(one, (row.fields[k] or "").strip(), kept, wanted.ids, is_text=not table.dtypes):
            fault, advice = f"has in column {table.label(one)} {reason}", row.advice if kept is None else ""
            break
    raise GraphError(f"{table.shown}, {row.place}, {fault}: {row.line}{advice}")


def _end(column: str, ids: Ids, table: Table) -> str:
    """An end in SQL; NULL if the field is none."""
    if ids == "names":
        name = f"try_cast({column} AS VARCHAR)" if table.dtypes else f"trim({column}, ' \t\r')"
        return f"nullif({name}, '')"
    return _cast(column, "BIGINT", "" if table.dtypes else INTEGER)


def _cast(column: str, kind: str, pattern: str) -> str:
    cast = f"try_cast({column} AS {kind})"
    return f"CASE WHEN regexp_full_match({column}, '{pattern}') THEN {cast} END" if pattern else cast


def _number(column: str, kept: np.dtype[Any], wanted: Wanted, stored: np.dtype[Any] | None) -> str:
    """A value in SQL, of text if `stored` is None; NULL if the field is no number, or its type does not hold it."""
    pattern = NUMBER if kept.kind == "f" else INTEGER
    number, test = _cast(column, _STORED[kept.kind], pattern if stored is None else ""), ""
    if kept.kind in "iu":
        info = np.iinfo(kept)
        test = f"({number}) BETWEEN {info.min} AND {info.max}"
        test += f" AND {column} = trunc({column})" if stored is not None and stored.base.kind == "f" else ""
    elif kept.kind == "f" and not wanted.nonfinite:
        limit = _LIMITS.get(kept.itemsize, math.inf)
        test = f"isfinite({number})" if limit == math.inf else f"abs({number}) < {limit!r}"
    return f"CASE WHEN {test} THEN {number} END" if test else number


def _reason(one: str, field: str, kept: np.dtype[Any] | None, ids: Ids, *, is_text: bool) -> str:
    """Return why a field is no value, or no end of an edge if `kept` is None; empty if it is one."""
    if kept is None and ids == "names":
        return "" if field else "no name"
    if kept is not None:
        field = (field if is_text else field.removesuffix(".0")).replace("true", "1").replace("false", "0")
    if kept is None or kept.kind in "iu":
        if not re.fullmatch(INTEGER, field):
            return "not an integer"
        info = np.iinfo(np.int64 if kept is None else kept)
        if info.min <= int(field) <= info.max:
            return ""
        return (
            "an integer that does not fit 64 bits"
            if kept is None
            else f"a {one} that {kept} does not hold: say {one}:int64"
        )
    if not re.fullmatch(NUMBER, field):
        return "not a number"
    return "" if abs(float(field)) < _LIMITS.get(kept.itemsize, math.inf) else f"a {one} that is not finite: {ALLOW}"
