"""Edges in the table `edges`: roles and types of columns, and the interface of files of edges.

The table has the columns s and t, the ends of an edge as BIGINT or VARCHAR, and v0, v1, … for the numbers of its values.
`rowid` is the position of an edge in all files.
"""

from __future__ import annotations

import abc
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np

from dorylax.graph.from_files.database import Database
from dorylax.graph.from_files.tables import TextTable, open_table
from dorylax.graph.from_files.text import COMMENTS, INTEGER, NUMBER, Ids, Wanted
from dorylax.graph.validate import GraphError
from dorylax.near_matches import did_you_mean

ALLOW = "--allow-nonfinite takes such values"
_STORED = {"f": "DOUBLE", "i": "BIGINT", "u": "UBIGINT", "b": "BOOLEAN"}
_LIMITS = {2: 65520.0, 4: 3.4028235677973366e38, 8: math.inf}  # values that round to infinity, by bytes
_TYPES = {
    **{"FLOAT": "f4", "DOUBLE": "f8", "BOOLEAN": "?"},
    **{"TINYINT": "i1", "SMALLINT": "i2", "INTEGER": "i4", "BIGINT": "i8"},
    **{"UTINYINT": "u1", "USMALLINT": "u2", "UINTEGER": "u4", "UBIGINT": "u8"},
}


class Values(NamedTuple):
    """Type of the values of edges under one name: the dtype, and the shape of one edge's values."""

    dtype: np.dtype[Any]
    row: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Numbers per edge."""
        return math.prod(self.row)


class EdgeFile(abc.ABC):
    """One file of edges.

    Attributes:
        shown: Its name in messages.
        described: Detected layout, with the options that override it.
        values: Values of its edges under their names.
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
        """Append all edges to the table `edges`. Raises a GraphError if a row is wrong, or the file is damaged."""

    @abc.abstractmethod
    def where(self, database: Database, row: int) -> str:
        """Return the place and content of a row, for messages."""


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


def checked_values(what: str, stored: np.dtype[Any], row: tuple[int, ...], dtype: np.dtype[Any] | None) -> Values:
    """Return the type that values are kept in.

    Raises a GraphError if they are no real numbers or truth values, or there are none for an edge.
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
    kinds = [stored(kept) for kept in values for _ in range(kept.size)]
    return [f"v{k} {kind}" for k, kind in enumerate(kinds, first)]


def required(values: Mapping[str, Values]) -> list[str]:
    """Return all columns of the table `edges`."""
    return ["s", "t", *(f"v{k}" for k in range(sum(kept.size for kept in values.values())))]


def stored(kept: Values) -> str:
    """Return the type in which DuckDB stores values."""
    return _STORED[kept.dtype.kind]


def values_described(values: Mapping[str, Values]) -> str:
    """Return names and types of values, and the option that overrides them."""
    told = ", ".join(f"{one} {kept.dtype}" for one, kept in values.items())
    return f"values {told or 'none'} (--values)"


@final
class TableEdges(EdgeFile):
    """Edges in rows of a table: lines of text or JSON, or Parquet."""

    def __init__(self, database: Database, path: Path, shown_as: str, wanted: Wanted) -> None:
        self._table = table = open_table(database, path, shown_as, wanted)
        if isinstance(table, TextTable) and table.names is None:
            if table.width not in (0, 2):
                raise GraphError(
                    f"{shown_as} has {table.width} column{'s' * (table.width != 1)}, expected 2: say what they are, as "
                    "--columns source,target,weight (- skips one), or --header if its first line does"
                )
            table.names = ("source", "target")
        names, types = table.names or (), table.types
        source, target, values = roles(shown_as, names, wanted)
        if types is not None and wanted.ids != "names":
            for column in (source, target):
                if not types[column].endswith(("INT", "INTEGER")):
                    advice = ": --ids names if vertices have names" if types[column] == "VARCHAR" else ""
                    raise GraphError(f"{shown_as}: {column} must hold integers, got {types[column]}{advice}")
        self.values = {
            one: checked_values(f"{shown_as}: {one}", _dtype(types[one] if types else "FLOAT"), (), kept)
            for one, kept in values.items()
        }
        self._wanted, self.shown, self.estimate = wanted, shown_as, table.estimate
        self._columns = [names.index(one) for one in (source, target, *values)]
        self.described = (
            f"{table.described}, sources {source} (--source), targets {target} (--target), "
            f"{values_described(self.values)}, vertices are {wanted.ids} (--ids)"
        )
        if isinstance(table, TextTable) and wanted.ids == "numbers":
            ends = [row[k] for row in table.rows for k in self._columns[:2] if k < len(row)]
            self.largest = max((int(end) for end in ends if re.fullmatch(r"\d{1,10}", end)), default=-1)

    def load(self, database: Database) -> None:
        """See `EdgeFile`."""
        first, wanted = database.value("SELECT count(*) FROM edges"), self._wanted
        bad = self._table.fill(lambda query: database.insert("edges", self._selection(query), required(self.values)))
        if bad is not None:
            raise GraphError(f"{self.shown}, {self._fault(database, bad)}")
        ends = self._columns[:2]
        if isinstance(self._table, TextTable) and wanted.ids == "names" and wanted.comments is None and 0 in ends:
            test = " OR ".join(f"starts_with({'st'[ends.index(0)]}, '{mark}')" for mark in COMMENTS)
            row = database.value(f"SELECT min(rowid) FROM edges WHERE rowid >= {first} AND ({test})")
            if row is not None:
                raise GraphError(
                    f"{self.where(database, row - first)} may be a comment or an edge: --comments '#%' skips such lines, "
                    "--comments '' reads them"
                )

    def where(self, database: Database, row: int) -> str:
        """See `EdgeFile`."""
        found = self._table.row(database, row)
        content = found.line or ", ".join(str(found.fields[k]) for k in self._columns)
        return f"{self.shown}, {found.place}: {content}"

    def _fault(self, database: Database, number: int) -> str:
        row, width = self._table.row(database, number), len(self._table.names or ())
        line = f": {row.line}" if row.line else ""
        if (fields := len(row.fields)) != width:
            return f"{row.place}, has {fields} column{'s' * (fields != 1)}, expected {width}{line}{row.advice}"
        for column in self._columns[:2]:
            if (reason := _end_fault(row.fields[column], self._wanted.ids)) is not None:
                return f"{row.place}, has in column {self._table.label(column)} {reason}{line}{row.advice}"
        for column, (one, kept) in zip(self._columns[2:], self.values.items(), strict=True):
            if (reason := _value_fault(one, row.fields[column], kept.dtype)) is not None:
                return f"{row.place}, has in column {self._table.label(column)} {reason}{line}"
        if not line:
            return f"{row.place}, has a value that is not read"
        return f"{row.place}, cannot be split into columns (is a quote not closed?){line}"

    def _selection(self, query: str) -> str:
        """The columns s, t, v0, … with NULL for fields that are none, and for values that their types do not hold."""
        is_text, names = self._table.types is None, self._wanted.ids == "names"

        def number(column: int, pattern: str, kind: str) -> str:
            cast = f"try_cast(c{column} AS {kind})"
            return f"CASE WHEN regexp_full_match(c{column}, '{pattern}') THEN {cast} END" if is_text else cast

        ends = self._columns[:2]
        if names:
            found = [f"trim(c{k}, ' \t\r')" if is_text else f"try_cast(c{k} AS VARCHAR)" for k in ends]
        else:
            found = [number(k, INTEGER, "BIGINT") for k in ends]
        columns = ["nullif(s, '')", "nullif(t, '')"] if names else ["s", "t"]
        for k, (column, kept) in enumerate(zip(self._columns[2:], self.values.values(), strict=True)):
            found.append(number(column, NUMBER if kept.dtype.kind == "f" else INTEGER, stored(kept)))
            test = ""
            if kept.dtype.kind in "iu":
                test = f"v{k} BETWEEN {np.iinfo(kept.dtype).min} AND {np.iinfo(kept.dtype).max}"
            elif kept.dtype.kind == "f" and not self._wanted.nonfinite:
                limit = _LIMITS[kept.dtype.itemsize]
                test = f"isfinite(v{k})" if limit == math.inf else f"abs(v{k}) < {limit!r}"
            columns.append(f"CASE WHEN {test} THEN v{k} END" if test else f"v{k}")
        inner = ", ".join(f"{one} AS {column}" for one, column in zip(found, required(self.values), strict=True))
        return f"SELECT {', '.join(columns)} FROM (SELECT {inner} FROM ({query}))"


def _end_fault(field: str | None, ids: Ids) -> str | None:
    """Return why a field is no end of an edge; None if it is one."""
    field = (field or "").strip()
    if ids == "names":
        return None if field else "no name"
    if not re.fullmatch(INTEGER, field):
        return "not an integer"
    return None if -(2**63) <= int(field) < 2**63 else "an integer that does not fit 64 bits"


def _value_fault(one: str, field: str | None, dtype: np.dtype[Any]) -> str | None:
    """Return why a field is no value; None if it is one."""
    field = (field or "").strip().replace("true", "1").replace("false", "0")
    if dtype.kind in "iu":
        if not re.fullmatch(INTEGER, field):
            return "not an integer"
        info = np.iinfo(dtype)
        return None if info.min <= int(field) <= info.max else f"a {one} that {dtype} does not hold: say {one}:int64"
    if not re.fullmatch(NUMBER, field):
        return "not a number"
    return None if abs(float(field)) < _LIMITS.get(dtype.itemsize, math.inf) else f"a {one} that is not finite: {ALLOW}"


def _dtype(kind: str) -> np.dtype[Any]:
    """The NumPy type of a type of DuckDB; object for those that hold no numbers."""
    return np.dtype("f8" if kind.startswith("DECIMAL") else _TYPES.get(kind, "O"))
