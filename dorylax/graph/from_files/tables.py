"""Edges from tables: lines of text, lines of JSON, and Parquet. Fields of text are checked in DuckDB, and explained here."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

import duckdb
import numpy as np

from dorylax.graph.from_files.columns import (
    ALLOW,
    EdgeFile,
    Ids,
    Values,
    Wanted,
    checked_values,
    required,
    roles,
    stored,
    values_described,
)
from dorylax.graph.from_files.database import Database, name, text
from dorylax.graph.from_files.text import (
    COMMENTS,
    INTEGER,
    NUMBER,
    check_packed,
    damage,
    packed_as,
    read_head,
    shown,
)
from dorylax.graph.validate import GraphError

_LIMITS = {2: 65520.0, 4: 3.4028235677973366e38, 8: math.inf}  # values that round to infinity, by bytes


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
                f"{shown_as} has {table.width} column{'s' * (table.width != 1)}, expected 2: say what they are, as "
                "--columns source,target,weight (- skips one), or --header if its first line does"
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
            parts += [f"try_cast({name(one)} AS {stored(self.values[one])}) AS v{k}" for k, one in enumerate(values)]
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
    return None if abs(float(field)) < _LIMITS.get(dtype.itemsize, math.inf) else f"a {one} that is not finite: {ALLOW}"


def _fields_as(ends: Sequence[str], fields: Sequence[str], values: Mapping[str, Values], wanted: Wanted) -> str:
    """Fields of text as the columns s, t, v0, …; NULL for one that is none."""

    def number(column: str, pattern: str, kind: str) -> str:
        return f"CASE WHEN regexp_full_match({column}, '{pattern}') THEN try_cast({column} AS {kind}) END"

    names = wanted.ids == "names"
    found = [f"trim({end}, ' \t\r')" if names else number(end, INTEGER, "BIGINT") for end in ends]
    for field, kept in zip(fields, values.values(), strict=True):
        found.append(number(field, NUMBER if kept.dtype.kind == "f" else INTEGER, stored(kept)))
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


def _roles_described(source: str, target: str, values: Mapping[str, Values], wanted: Wanted) -> str:
    return (
        f"sources {source} (--source), targets {target} (--target), {values_described(values)}, "
        f"vertices are {wanted.ids} (--ids)"
    )
