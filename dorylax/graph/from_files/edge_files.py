"""Files of edges by format: each describes itself, loads its rows into the table `edges`, and explains a wrong row.

The table has the columns s and t, the ends of an edge as BIGINT or VARCHAR, and v0, v1, … for the numbers of its values.
`rowid` is the position of an edge in all files.
"""

from __future__ import annotations

import abc
import contextlib
import functools
import gzip
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, final

import duckdb
import numpy as np

from dorylax.graph.from_files.database import Database, name, text
from dorylax.graph.from_files.text import COMMENTS, INTEGER, NUMBER, check_packed, damage, packed_as, read_head, shown
from dorylax.graph.mapped import release
from dorylax.graph.npz import NPY_DAMAGE, open_npz
from dorylax.graph.rows import spans
from dorylax.graph.validate import GraphError
from dorylax.near_matches import did_you_mean

Ids = Literal["numbers", "integers", "names"]
"""What files call vertices: numbers 0 … V-1, any integers, or any text."""

_PIECE = 1 << 19  # rows of arrays that are inserted at once
_LIMITS = {2: 65520.0, 4: 3.4028235677973366e38, 8: math.inf}  # values that round to infinity, by bytes
_STORED = {"f": "DOUBLE", "i": "BIGINT", "u": "UBIGINT", "b": "BOOLEAN"}


class Values(NamedTuple):
    """Type of the values of edges under one name: the dtype, and the shape of one edge's values."""

    dtype: np.dtype[Any]
    row: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Numbers per edge."""
        return math.prod(self.row)


class Wanted(NamedTuple):
    """Columns to read from files of edges.

    Attributes:
        ids: What the ends of edges are.
        source: Column of the sources; None for "source", or the first.
        target: Column of the targets; None for "target", or the second.
        values: Columns of values and their types, None for the type in the file; None for all other columns.
        columns: Names of all columns of text, "-" for one to skip; None to take them from the file.
        header: Whether a line of text names the columns; None to detect it.
        separator: Character between the fields of text, empty for blanks; None to detect it.
        comments: Characters at the beginning of lines of text to skip; None for "#%".
        nonfinite: Whether values may be infinite or NaN.
    """

    ids: Ids = "numbers"
    source: str | None = None
    target: str | None = None
    values: Mapping[str, np.dtype[Any] | None] | None = None
    columns: Sequence[str] | None = None
    header: bool | None = None
    separator: str | None = None
    comments: str | None = None
    nonfinite: bool = False


class EdgeFile(abc.ABC):
    """One file of edges.

    Attributes:
        shown: Its name in messages.
        described: What was detected, with the options that override it.
        values: Values of its edges by name.
        estimate: Approximate number of edges.
        num_vertices: V where the file states it, else None.
        largest: Largest vertex number among the first rows; -1 if unknown.
    """

    shown: str
    described: str
    values: Mapping[str, Values]
    estimate: int
    num_vertices: int | None = None
    largest: int = -1

    @abc.abstractmethod
    def load(self, database: Database) -> None:
        """Append all edges to the table `edges`.

        Raises:
            GraphError: A row is wrong, or the file is damaged.
        """

    @abc.abstractmethod
    def where(self, database: Database, row: int) -> str:
        """Return the place and content of a row, for messages."""


@final
class TextEdges(EdgeFile):
    """Lines of text."""

    def __init__(self, database: Database, path: Path, shown_as: str, wanted: Wanted) -> None:
        self._wanted = wanted
        known = [one for one in (wanted.source, wanted.target, *(wanted.values or ())) if one]
        self._table = table = read_head(
            database,
            path,
            shown_as,
            separator=wanted.separator,
            header=wanted.header,
            columns=wanted.columns,
            comments=wanted.comments,
            named_columns=known,
            names=wanted.ids == "names",
        )
        columns = table.names or ("source", "target")
        if table.names is None and table.width not in (0, 2):
            raise GraphError(
                f"{shown_as} has {table.width} column{'s' * (table.width != 1)}, expected 2: say what they are, as --columns "
                "source,target,weight (- skips one), or --header if its first line does"
            )
        if table.names is None:
            self._table = table = table._replace(names=columns)
        source, target, values = roles(shown_as, columns, wanted)
        self._ends = columns.index(source), columns.index(target)
        self.values = {one: Values(np.dtype(np.float32) if kind is None else kind) for one, kind in values.items()}
        self._places = [columns.index(one) for one in values]
        self.shown, self.estimate = shown_as, table.estimate
        self.described = f"{table.described()}, {_roles_described(source, target, self.values, wanted)}"
        if wanted.ids == "numbers":
            ends = [row[k] for row in table.rows for k in self._ends if k < len(row)]
            self.largest = max((int(end) for end in ends if re.fullmatch(r"\d{1,10}", end)), default=-1)

    def load(self, database: Database) -> None:
        """See `EdgeFile`."""
        check_packed(Path(self._table.path), self.shown)
        first = database.value("SELECT count(*) FROM edges")
        for careful in (False, True) if self._table.regular else (True,):
            try:
                columns = _fields_as(
                    [f"c{k}" for k in self._ends], [f"c{k}" for k in self._places], self.values, self._wanted
                )
                query = _checked(
                    f"SELECT {columns} FROM ({self._table.query(careful=careful)})", self.values, self._wanted
                )
                bad = database.insert("edges", query, required(self.values))
            except duckdb.Error as error:
                if careful:
                    raise GraphError(f"{self.shown} {damage(error)}") from None
                continue
            if bad is None:
                break
            if careful:
                number, line = self._table.line(database, bad)
                raise GraphError(f"{self.shown}, line {number:,}, {self._fault(line, number)}")
        if self._wanted.ids == "names" and self._wanted.comments is None and 0 in self._ends:
            test = " OR ".join(f"starts_with({'st'[self._ends.index(0)]}, '{mark}')" for mark in COMMENTS)
            row = database.value(f"SELECT min(rowid) FROM edges WHERE rowid >= {first} AND ({test})")
            if row is not None:
                raise GraphError(
                    f"{self.where(database, row - first)} may be a comment or an edge: --comments '#%' skips such lines, "
                    "--comments '' reads them"
                )

    def where(self, database: Database, row: int) -> str:
        """See `EdgeFile`."""
        number, line = self._table.line(database, row)
        return f"{self.shown}, line {number:,}: {shown(line)}"

    def _fault(self, line: str, number: int) -> str:
        fields, width = self._table.fields(line), self._table.width
        advice = ""
        if number == self._table.skip + 1 and not self._table.header:
            advice = ": --header if this line names the columns"
        elif self._wanted.ids != "names":
            advice = ": --ids names if vertices have names"
        if line.lstrip()[:1] in ("#", "%"):
            advice = ": --comments '#%' skips such lines"
        if len(fields) != width:
            return f"has {len(fields)} column{'s' * (len(fields) != 1)}, expected {width}: {shown(line)}{advice}"
        for end in self._ends:
            if (reason := end_fault(fields[end], self._wanted.ids)) is not None:
                return f"has in column {end + 1} {reason}: {shown(line)}{advice}"
        for place, (one, kind) in zip(self._places, self.values.items(), strict=True):
            if (reason := _value_fault(one, fields[place], kind.dtype)) is not None:
                return f"has in column {place + 1} {reason}: {shown(line)}"
        return f"cannot be split into columns (is a quote not closed?): {shown(line)}"


@final
class TableEdges(EdgeFile):
    """Parquet, or lines of JSON."""

    def __init__(self, database: Database, path: Path, shown_as: str, wanted: Wanted, function: str) -> None:
        self._wanted, self._json, self.shown = wanted, function.startswith("read_json"), shown_as
        kind = "file of JSON lines" if self._json else "Parquet file"
        self._kind, self._from, json = kind, function, self._json
        try:
            types = {row[0]: row[1] for row in database.rows(f"DESCRIBE SELECT * FROM {function}")}
            source, target, values = roles(shown_as, list(types), wanted)
            if json:
                used = ", ".join(f"{text(one)}: 'VARCHAR'" for one in (source, target, *values))
                self._from = f"{function[:-1]}, columns = {{{used}}})"
                self.estimate = path.stat().st_size // 32
            else:
                rows = f"SELECT sum(num_rows) FROM parquet_file_metadata({text(str(path))})"
                self.estimate = int(database.value(rows) or 0)
        except duckdb.Error as error:
            raise GraphError(f"{shown_as} is no {kind}, or is damaged ({_first_line(error)}): get it again") from None
        if not json and wanted.ids != "names":
            for column in (source, target):
                if not types[column].endswith(("INT", "INTEGER")):
                    advice = ": --ids names if vertices have names" if types[column] == "VARCHAR" else ""
                    raise GraphError(f"{shown_as}: {column} must hold integers, got {types[column]}{advice}")
        self.values = {
            one: checked_values(f"{shown_as}: {one}", np.dtype(np.float32) if json else _dtype(types[one]), (), kept)
            for one, kept in values.items()
        }
        self._columns = [source, target, *values]
        self.described = f"{shown_as}: {kind}, {_roles_described(source, target, self.values, wanted)}"

    def load(self, database: Database) -> None:
        """See `EdgeFile`."""
        ends, values = self._columns[:2], self._columns[2:]
        if self._json:
            columns = _fields_as(list(map(name, ends)), list(map(name, values)), self.values, self._wanted)
        else:
            kind = "VARCHAR" if self._wanted.ids == "names" else "BIGINT"
            parts = [f"try_cast({name(one)} AS {kind}) AS {end}" for one, end in zip(ends, "st", strict=True)]
            parts += [f"try_cast({name(one)} AS {_stored(self.values[one])}) AS v{k}" for k, one in enumerate(values)]
            columns = ", ".join(parts)
        query = _checked(f"SELECT {columns} FROM {self._from}", self.values, self._wanted)
        try:
            bad = database.insert("edges", query, required(self.values))
        except duckdb.Error as error:
            raise GraphError(
                f"{self.shown} is no {self._kind}, or is damaged ({_first_line(error)}): get it again"
            ) from None
        if bad is not None:
            found = self._row(database, bad)
            faults = [end_fault(found[k], self._wanted.ids) for k in (0, 1)]
            faults += [_value_fault(one, found[2 + k], self.values[one].dtype) for k, one in enumerate(values)]
            k, reason = next((k, one) for k, one in enumerate([*faults, "a value that is not read"]) if one)
            raise GraphError(f"{self.shown}, row {bad + 1:,}, has in column {([*self._columns, ''])[k]} {reason}")

    def where(self, database: Database, row: int) -> str:
        """See `EdgeFile`."""
        return f"{self.shown}, row {row + 1:,}: {', '.join(map(str, self._row(database, row)))}"

    def _row(self, database: Database, row: int) -> list[str | None]:
        columns = ", ".join(f"{name(one)}::VARCHAR" for one in self._columns)
        return list(database.rows(f"SELECT {columns} FROM {self._from} LIMIT 1 OFFSET {row}")[0])


@final
class ArrayEdges(EdgeFile):
    """Arrays: of NumPy (memory-mapped where they are stored uncompressed), or of a sparse matrix of SciPy."""

    def __init__(
        self,
        shown_as: str,
        kind: str,
        ends: tuple[np.ndarray, np.ndarray],
        values: Mapping[str, np.ndarray],
        wanted: Wanted,
        num_vertices: int | None = None,
    ) -> None:
        self.shown, self._wanted, self._ends, self.num_vertices = shown_as, wanted, ends, num_vertices
        self._arrays = dict(values)
        self.values = {
            one: checked_values(f"{shown_as}: {one}", array.dtype, array.shape[1:], (wanted.values or {}).get(one))
            for one, array in self._arrays.items()
        }
        for one, array in (("sources", ends[0]), ("targets", ends[1])):
            if array.dtype.kind not in "iu" and not (wanted.ids == "names" and array.dtype.kind in "SUOT"):
                advice = ": --ids names if vertices have names" if array.dtype.kind in "SUOT" else ""
                raise GraphError(f"{shown_as}: {one} must hold integers, got {array.dtype}{advice}")
        self.estimate = len(ends[0])
        self.described = f"{shown_as}: {kind}, {self.estimate:,} edges, {_values_described(self.values, '--values')}"

    def load(self, database: Database) -> None:
        """See `EdgeFile`."""
        with database.transaction():
            for start, stop in spans(self.estimate, _PIECE):
                columns = {end: self._end(array, start, stop) for end, array in zip("st", self._ends, strict=True)}
                for one, array in self._arrays.items():
                    with np.errstate(over="ignore"):  # what is too large becomes infinite
                        part = array[start:stop].astype(self.values[one].dtype)
                    where = functools.partial(self._where_in, database, start, one)
                    _check_finite(part, where, nonfinite=self._wanted.nonfinite)
                    columns |= _flat(part, len(columns) - 2)
                database.append("edges", columns)
                release(*self._ends, *self._arrays.values())

    def where(self, database: Database, row: int) -> str:  # noqa: ARG002
        """See `EdgeFile`."""
        return f"{self.shown}, edge {row:,}: {tuple(end[row].item() for end in self._ends)}"

    def _where_in(self, database: Database, start: int, one: str, k: int) -> str:
        return f"{self.where(database, start + k)}: {one}"

    def _end(self, array: np.ndarray, start: int, stop: int) -> np.ndarray:
        part = np.ascontiguousarray(array[start:stop])
        if self._wanted.ids == "names":
            names = [
                one.decode() if isinstance(one, bytes) else None if one is None else str(one) for one in part.tolist()
            ]
            if any(not one for one in names):
                k = next(k for k, one in enumerate(names) if not one)
                raise GraphError(f"{self.shown}, edge {start + k:,} has {part[k]!r}, which is no name of a vertex")
            return np.array(names, object)
        if part.dtype == np.uint64 and len(part) and int(part.max()) >= 2**63:
            raise GraphError(f"{self.shown} holds {part.max()}, which does not fit int64")
        return part.astype(np.int64)


_ALLOW = "--allow-nonfinite takes such values"


def open_edges(database: Database, path: Path, shown_as: str, wanted: Wanted) -> EdgeFile:
    """Open a file of edges in the format that its name and first bytes tell; text if they tell none.

    Raises:
        GraphError: The file is damaged, or holds no edges.
        OSError: The file cannot be read.
    """
    given = Path(shown_as)
    suffixes = [one for one in given.suffixes if one not in (".gz", ".zst")] or [""]
    with path.open("rb") as file:
        start = file.read(16)
    if start.startswith(b"%%MatrixMarket") or suffixes[-1] == ".mtx":
        return _matrix_market(path, shown_as, wanted)
    if suffixes[-1] in (".graph", ".metis"):
        raise GraphError(
            f"{shown_as} is a METIS graph by its name, which is not read: convert it to lines of edges, or rename it if it "
            "has such lines"
        )
    if given.suffix == ".npy":
        return _npy(path, shown_as, wanted)
    if given.suffix == ".npz":
        return _npz(path, shown_as, wanted)
    if (function := table_function(path, shown_as)) is not None:
        return TableEdges(database, path, shown_as, wanted, function)
    return TextEdges(database, path, shown_as, wanted)


def table_function(path: Path, shown_as: str) -> str | None:
    """Return the function of DuckDB that reads a file of Parquet or of JSON lines; None for other files.

    Raises:
        GraphError: A compressed file is damaged.
        OSError: The file cannot be read.
    """
    suffixes = Path(shown_as).suffixes
    while suffixes and suffixes[-1] in (".gz", ".zst"):
        suffixes.pop()
    if suffixes and suffixes[-1] in (".parquet", ".pq"):
        return f"read_parquet({text(str(path))})"
    if suffixes and suffixes[-1] in (".jsonl", ".ndjson"):
        check_packed(path, shown_as)
        packed = packed_as(path, shown_as)
        return f"read_json({text(str(path))}, format = 'newline_delimited', compression = '{packed}')"
    return None


def roles(shown_as: str, columns: Sequence[str], wanted: Wanted) -> tuple[str, str, dict[str, np.dtype[Any] | None]]:
    """Return the columns of sources, targets and values.

    Raises:
        GraphError: There is no such column.
    """
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


def checked_values(what: str, stored: np.dtype[Any], row: tuple[int, ...], dtype: np.dtype[Any] | None) -> Values:
    """Return the type that values are kept in.

    Raises:
        GraphError: They are no real numbers or truth values, or there are none for an edge.
    """
    if 0 in row:
        raise GraphError(f"{what} has {list(row)} numbers per edge: expected at least one")
    if stored.kind not in "fiub":
        raise GraphError(f"{what} must be real numbers, got {stored}: --values says which columns to take")
    return Values((dtype or stored).newbyteorder("="), row)


def table_columns(values: Mapping[str, Values], ids: Ids) -> str:
    """Return the columns of the table `edges` in SQL."""
    end = "VARCHAR" if ids == "names" else "BIGINT"
    return ", ".join([f"s {end}, t {end}", *value_columns(values.values())])


def value_columns(values: Iterable[Values], first: int = 0) -> list[str]:
    """Return the columns v`first`, … of values in SQL."""
    kinds = [_stored(kept) for kept in values for _ in range(kept.size)]
    return [f"v{k} {kind}" for k, kind in enumerate(kinds, first)]


def required(values: Mapping[str, Values]) -> list[str]:
    """Return all columns of the table `edges`."""
    return ["s", "t", *(f"v{k}" for k in range(sum(kept.size for kept in values.values())))]


def append_values(database: Database, table: str, array: np.ndarray, what: str, first: int, *, nonfinite: bool) -> None:
    """Append values `[E, …]` as the columns v`first`, … to a table that has no others.

    Raises:
        GraphError: A value is not finite, unless that is allowed.
    """
    with database.transaction():
        for start, stop in spans(len(array), _PIECE):
            part = array[start:stop]
            _check_finite(part, lambda k, start=start: f"{what}, edge {start + k:,}", nonfinite=nonfinite)
            database.append(table, _flat(part, first))
            release(array)


def _check_finite(part: np.ndarray, where: Callable[[int], str], *, nonfinite: bool) -> None:
    if part.dtype.kind == "f" and not nonfinite and not np.isfinite(part).all():
        raise GraphError(
            f"{where(int(np.argwhere(~np.isfinite(part))[0][0]))} has a value that is not finite: {_ALLOW}"
        )


def _flat(part: np.ndarray, first: int) -> dict[str, np.ndarray]:
    """Values `[n, …]` as columns v`first`, …, in types that DuckDB stores."""
    part = part.astype(np.float64) if part.dtype.kind == "f" else part.astype(part.dtype.newbyteorder("="))
    columns = part.reshape(len(part), -1)
    return {f"v{first + k}": np.ascontiguousarray(columns[:, k]) for k in range(columns.shape[1])}


def mapped_array(path: Path, shown_as: str | None = None) -> np.ndarray:
    """Return the array in a .npy file, memory-mapped.

    Raises:
        GraphError: The file is damaged, or holds no array.
        OSError: The file cannot be read.
    """
    shown_as = shown_as or str(path)
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError:
        raise
    except NPY_DAMAGE as error:
        raise GraphError(f"{shown_as} is no array of np.save, or is damaged ({error})") from None
    if not isinstance(array, np.ndarray):
        raise GraphError(f"{shown_as} is an archive of arrays, expected one array of np.save")
    return array


def member_array(path: Path, member: str) -> np.ndarray:
    """Return an array of an archive: memory-mapped if it is stored uncompressed, else read.

    Raises:
        GraphError: The archive is damaged, or has no such array.
        OSError: The file cannot be read.
    """
    with open_npz(path) as archive:
        if member not in archive:
            raise GraphError(f"has no array {member}: {did_you_mean(member, archive.names)}")
        place = archive.place(member)
        if place is None or 0 in place.shape or not place.shape:
            return archive.fetch(member)
    return np.memmap(path, place.dtype, "r", place.elements, place.shape)


def end_fault(field: str | None, ids: Ids) -> str | None:
    """Return why a field is no end of an edge; None if it is one."""
    field = (field or "").strip()
    if ids == "names":
        return None if field else "no name"
    if not re.fullmatch(INTEGER, field):
        return "not an integer"
    return None if -(2**63) <= int(field) < 2**63 else "an integer that does not fit 64 bits"


def _value_fault(one: str, field: str | None, dtype: np.dtype[Any]) -> str | None:
    field = (field or "").strip().replace("true", "1").replace("false", "0")
    if dtype.kind in "iu":
        if not re.fullmatch(INTEGER, field):
            return "not an integer"
        info = np.iinfo(dtype)
        return None if info.min <= int(field) <= info.max else f"a {one} that {dtype} does not hold: say {one}:int64"
    if not re.fullmatch(NUMBER, field):
        return "not a number"
    return (
        None if abs(float(field)) < _LIMITS.get(dtype.itemsize, math.inf) else f"a {one} that is not finite: {_ALLOW}"
    )


def _stored(kept: Values) -> str:
    return _STORED[kept.dtype.kind]


def _fields_as(ends: Sequence[str], fields: Sequence[str], values: Mapping[str, Values], wanted: Wanted) -> str:
    """Fields of text as the columns s, t, v0, …; NULL for one that is none."""

    def number(column: str, pattern: str, kind: str) -> str:
        return f"CASE WHEN regexp_full_match({column}, '{pattern}') THEN try_cast({column} AS {kind}) END"

    names = wanted.ids == "names"
    found = [f"trim({end}, ' \t\r')" if names else number(end, INTEGER, "BIGINT") for end in ends]
    for field, kept in zip(fields, values.values(), strict=True):
        found.append(number(field, NUMBER if kept.dtype.kind == "f" else INTEGER, _stored(kept)))
    return ", ".join(f"{one} AS {column}" for one, column in zip(found, required(values), strict=True))


def _checked(query: str, values: Mapping[str, Values], wanted: Wanted) -> str:
    """The columns s, t, v0, … with NULL for empty names and for values that their types do not hold."""
    columns = ["nullif(s, '')", "nullif(t, '')"] if wanted.ids == "names" else ["s", "t"]
    for k, kept in enumerate(values.values()):
        test = ""
        if kept.dtype.kind in "iu":
            test = f"v{k} BETWEEN {np.iinfo(kept.dtype).min} AND {np.iinfo(kept.dtype).max}"
        elif kept.dtype.kind == "f" and not wanted.nonfinite:
            limit = _LIMITS[kept.dtype.itemsize]
            test = f"isfinite(v{k})" if limit == math.inf else f"abs(v{k}) < {limit!r}"
        columns.append(f"CASE WHEN {test} THEN v{k} END" if test else f"v{k}")
    return f"SELECT {', '.join(columns)} FROM ({query})"


def _dtype(kind: str) -> np.dtype[Any]:
    """The NumPy type of a type of DuckDB; object for those that hold no numbers."""
    kind = "DOUBLE" if kind.startswith("DECIMAL") else kind
    found = {
        "FLOAT": "f4",
        "DOUBLE": "f8",
        "BOOLEAN": "?",
        "TINYINT": "i1",
        "SMALLINT": "i2",
        "INTEGER": "i4",
        "BIGINT": "i8",
    }
    found |= {"UTINYINT": "u1", "USMALLINT": "u2", "UINTEGER": "u4", "UBIGINT": "u8"}
    return np.dtype(found.get(kind, "O"))


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


def _values_described(values: Mapping[str, Values], option: str) -> str:
    told = ", ".join(f"{one} {kept.dtype}" for one, kept in values.items())
    return f"values {told or 'none'} ({option})"


def _roles_described(source: str, target: str, values: Mapping[str, Values], wanted: Wanted) -> str:
    return (
        f"sources {source} (--source), targets {target} (--target), {_values_described(values, '--values')}, "
        f"vertices are {wanted.ids} (--ids)"
    )


def _npy(path: Path, shown_as: str, wanted: Wanted) -> EdgeFile:
    array = mapped_array(path, shown_as)
    if array.ndim != 2 or 2 not in array.shape:
        raise GraphError(f"{shown_as} must be edges [E, 2] or [2, E], got {array.dtype} {list(array.shape)}")
    if array.shape == (2, 2):
        raise GraphError(f"{shown_as} is [2, 2], which may be [E, 2] or [2, E]: give three edges or more, or text")
    if wanted.values:
        raise GraphError(
            f"{shown_as} has no column {next(iter(wanted.values))!r}: --edge-data takes values from a .npy"
        )
    edges = array.T if array.shape[1] == 2 else array
    return ArrayEdges(shown_as, "array of NumPy", (edges[0], edges[1]), {}, wanted)


def _npz(path: Path, shown_as: str, wanted: Wanted) -> EdgeFile:
    with open_npz(path) as archive:
        names = archive.names
    if {"format", "shape", "data"} <= set(names):
        import scipy.sparse

        return _matrix(scipy.sparse.load_npz(path), "matrix of SciPy", shown_as, wanted)
    given = ("edge_index",)
    if wanted.source or wanted.target or "edge_index" not in names:
        given = (wanted.source or "sources", wanted.target or "targets")
    found = {one: member_array(path, one) for one in (*given, *(wanted.values or {}))}
    ends = [found.pop(one) for one in given]
    if len(given) == 1:
        if ends[0].ndim != 2 or len(ends[0]) != 2:
            raise GraphError(f"{shown_as}: edge_index has shape {list(ends[0].shape)}, expected [2, E]")
        ends = list(ends[0])
    for one, array in [*zip(given, ends, strict=False), *found.items()]:
        if array.ndim < 1 or len(array) != len(ends[0]) or (one in given and array.ndim > 1):
            expected = [len(ends[0]), *array.shape[1:]]
            raise GraphError(f"{shown_as}: {one} has shape {list(array.shape)}, expected {expected}, one per edge")
    return ArrayEdges(shown_as, "archive of NumPy", (ends[0], ends[1]), found, wanted)


def _matrix_market(path: Path, shown_as: str, wanted: Wanted) -> EdgeFile:
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
    values = dict.fromkeys(names, entries.data)
    ends = (entries.coords[0], entries.coords[1])
    return ArrayEdges(shown_as, kind, ends, values, wanted, entries.shape[0] if wanted.ids == "numbers" else None)


def pieces(array: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the rows of an array in pieces, and give its memory-mapped pages back."""
    width = max(1, math.prod(array.shape[1:]))
    for start, stop in spans(len(array), max(1, (1 << 22) // width)):
        yield array[start:stop]
        release(array)
