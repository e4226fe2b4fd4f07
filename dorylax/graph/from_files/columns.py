"""Edges in the table `edges`: roles and types of the columns of a file, and the insertion of its rows.

The table has the columns s and t, the ends of an edge as BIGINT or VARCHAR, and v0, v1, … for the numbers of its values.
`rowid` is the position of an edge in all files.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np

from dorylax.graph.from_files.database import Database
from dorylax.graph.from_files.tables import Row, Table, TextTable
from dorylax.graph.from_files.text import COMMENTS, INTEGER, NUMBER, Ids, Wanted
from dorylax.graph.validate import GraphError
from dorylax.near_matches import did_you_mean

ALLOW = "--allow-nonfinite takes such values"
_STORED = {"f": "DOUBLE", "i": "BIGINT", "u": "UBIGINT", "b": "BOOLEAN"}
_LIMITS = {2: 65520.0, 4: 3.4028235677973366e38, 8: math.inf}  # values that round to infinity, by bytes


class Values(NamedTuple):
    """Type of the values of edges under one name: the dtype, and the shape of one edge's values."""

    dtype: np.dtype[Any]
    row: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Numbers per edge."""
        return math.prod(self.row)


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


def value_columns(values: Mapping[str, Values], first: int = 0) -> dict[str, str]:
    """Return the columns v`first`, … of values, and their types in SQL."""
    kinds = [_STORED[kept.dtype.kind] for kept in values.values() for _ in range(kept.size)]
    return {f"v{k}": kind for k, kind in enumerate(kinds, first)}


def values_described(values: Mapping[str, Values]) -> str:
    """Return names and types of values, and the option that overrides them."""
    told = ", ".join(f"{one} {kept.dtype}" for one, kept in values.items())
    return f"values {told or 'none'} (--values)"


@final
class EdgeFile:
    """A file of edges: a table whose columns have roles.

    Attributes:
        shown: Its name in messages.
        described: Detected layout, with the options that override it.
        values: Values of its edges under their names.
        estimate: Approximate number of edges.
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
        if table.types and wanted.ids != "names":
            for column in (source, target):
                if table.dtypes[column].kind not in "iu":
                    text = table.types[column] == "VARCHAR" or table.dtypes[column].kind in "SUT"
                    advice = ": --ids names if vertices have names" if text else ""
                    raise GraphError(f"{shown}: {column} must hold integers, got {table.types[column]}{advice}")
        self.values = {
            one: checked_values(f"{shown}: {one}", table.dtypes.get(one, np.dtype("f4")), table.shape_of(one), kept)
            for one, kept in values.items()
        }
        self._table, self._wanted, self._ends = table, wanted, (source, target)
        self.shown, self.estimate, self.num_vertices = shown, table.estimate, table.num_vertices
        self.described = (
            f"{table.described}, sources {source} (--source), targets {target} (--target), "
            f"{values_described(self.values)}, vertices are {wanted.ids} (--ids)"
        )
        self.largest, self.count = -1, 0
        if isinstance(table, TextTable) and wanted.ids == "numbers":
            places = [table.place(one) for one in self._ends]
            ends = [row[k] for row in table.rows for k in places if k < len(row)]
            self.largest = max((int(end) for end in ends if re.fullmatch(r"\d{1,10}", end)), default=-1)

    def load(self, database: Database) -> None:
        """Append all edges to the table `edges`. Raises a GraphError if a row is wrong, or the file is damaged."""
        first, wanted = database.value("SELECT count(*) FROM edges"), self._wanted
        insert_rows(database, "edges", self._table, self.values, wanted, ends=self._ends)
        self.count = int(database.value("SELECT count(*) FROM edges")) - first
        starts = [name for name, one in zip("st", self._ends, strict=True) if self._table.place(one) == 0]
        if isinstance(self._table, TextTable) and wanted.ids == "names" and wanted.comments is None and starts:
            test = " OR ".join(f"starts_with({starts[0]}, '{mark}')" for mark in COMMENTS)
            row = database.value(f"SELECT min(rowid) FROM edges WHERE rowid >= {first} AND ({test})")
            if row is not None:
                raise GraphError(
                    f"{self.where(database, row - first)} may be a comment or an edge: --comments '#%' skips such lines, "
                    "--comments '' reads them"
                )

    def where(self, database: Database, row: int) -> str:
        """Return the place and content of a row, for messages."""
        found = self._table.row(database, row)
        return f"{self.shown}, {found.place}: {found.line}"


def insert_rows(
    database: Database,
    into: str,
    table: Table,
    values: Mapping[str, Values],
    wanted: Wanted,
    *,
    ends: Sequence[str] = (),
    first: int = 0,
) -> None:
    """Append the rows of a file: its `ends` as the columns s and t, and its values as v`first`, ….

    Raises a GraphError at the first field that is no end, or no number that its type holds.
    """
    columns = {name: f"c{table.place(one)}" for name, one in zip("st", ends, strict=False)}
    chosen = {name: _end(column, wanted.ids, is_text=not table.types) for name, column in columns.items()}
    numbers = iter(value_columns(values, first))
    for one, kept in values.items():
        for k in range(kept.size):
            column = f"c{table.place(one) + k}"
            is_float = table.types is None or table.dtypes[one].kind == "f"
            chosen[next(numbers)] = _number(column, kept, wanted, is_text=not table.types, is_float=is_float)
    selection = ", ".join(f"{expression} AS {name}" for name, expression in chosen.items())
    bad = table.fill(database, lambda query: database.insert(into, f"SELECT {selection} FROM ({query})", list(chosen)))
    if bad is not None:
        raise GraphError(f"{table.shown}, {_fault(table, table.row(database, bad), ends, values, wanted.ids)}")


def _end(column: str, ids: Ids, *, is_text: bool) -> str:
    """An end in SQL; NULL if the field is none."""
    if ids == "names":
        name = f"trim({column}, ' \t\r')" if is_text else f"try_cast({column} AS VARCHAR)"
        return f"nullif({name}, '')"
    return _cast(column, "BIGINT", INTEGER if is_text else "")


def _cast(column: str, kind: str, pattern: str) -> str:
    cast = f"try_cast({column} AS {kind})"
    return f"CASE WHEN regexp_full_match({column}, '{pattern}') THEN {cast} END" if pattern else cast


def _number(column: str, kept: Values, wanted: Wanted, *, is_text: bool, is_float: bool) -> str:
    """A value in SQL; NULL if the field is no number, or its type does not hold it."""
    kind = kept.dtype.kind
    number = _cast(column, _STORED[kind], (NUMBER if kind == "f" else INTEGER) if is_text else "")
    test = ""
    if kind in "iu":
        info = np.iinfo(kept.dtype)
        test = f"({number}) BETWEEN {info.min} AND {info.max}"
        test += f" AND {column} = trunc({column})" if is_float and not is_text else ""
    elif kind == "f" and not wanted.nonfinite:
        limit = _LIMITS.get(kept.dtype.itemsize, math.inf)
        test = f"isfinite({number})" if limit == math.inf else f"abs({number}) < {limit!r}"
    return f"CASE WHEN {test} THEN {number} END" if test else number


def _fault(table: Table, row: Row, ends: Sequence[str], values: Mapping[str, Values], ids: Ids) -> str:
    """Describe the first fault of a row."""
    is_text, width = isinstance(table, TextTable), len(table.names or ())
    if is_text and (fields := len(row.fields)) != width:
        return f"{row.place}, has {fields} column{'s' * (fields != 1)}, expected {width}: {row.line}{row.advice}"
    for one in ends:
        if (reason := _end_fault(row.fields[table.place(one)], ids)) is not None:
            return f"{row.place}, has in column {table.label(one)} {reason}: {row.line}{row.advice}"
    for one, kept in values.items():
        for field in row.fields[table.place(one) :][: kept.size]:
            number = field.removesuffix(".0") if table.types and field is not None else field
            if (reason := _value_fault(one, number, kept.dtype)) is not None:
                return f"{row.place}, has in column {table.label(one)} {reason}: {row.line}"
    if is_text:
        return f"{row.place}, cannot be split into columns (is a quote not closed?): {row.line}"
    return f"{row.place}, has a value that is not read: {row.line}"


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
