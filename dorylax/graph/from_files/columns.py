"""Edges in the table `edges`: roles and types of columns, and the interface of files of edges.

The table has the columns s and t, the ends of an edge as BIGINT or VARCHAR, and v0, v1, … for the numbers of its values.
`rowid` is the position of an edge in all files.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from dorylax.graph.from_files.database import Database
from dorylax.graph.validate import GraphError
from dorylax.near_matches import did_you_mean

Ids = Literal["numbers", "integers", "names"]
"""What files call vertices: numbers 0 … V-1, any integers, or any text."""

ALLOW = "--allow-nonfinite takes such values"
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
        ids: Kind of the ends of edges.
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
        """Append all edges to the table `edges`.

        Raises:
            GraphError: A row is wrong, or the file is damaged.
        """

    @abc.abstractmethod
    def where(self, database: Database, row: int) -> str:
        """Return the place and content of a row, for messages."""


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
