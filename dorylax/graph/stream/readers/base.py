"""The contract of what reads edges from a file: chunks in order, from any place where a chunk ended."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from dorylax.graph.stream.lines import Names, names_in
from dorylax.graph.validate import GraphError
from dorylax.near_matches import did_you_mean

Ids = Literal["numbers", "integers", "names"]
"""What edges name their ends by: numbers of vertices 0 … V-1, any integers, or any text."""


class Values(NamedTuple):
    """Values of edges of one name.

    Attributes:
        dtype: of their elements.
        row: the shape of one edge's.
    """

    dtype: np.dtype[Any]
    row: tuple[int, ...] = ()


class Chunk(NamedTuple):
    """Some edges.

    Attributes:
        sources: int64 `[n]`, or names.
        targets: likewise.
        values: by name `[n, …]`.
        where: of an edge by its position in the chunk: where it is and what it looks like, for messages.
        state: of JSON: where the next chunk begins.
        read: bytes of the file that were read so far, for the bar.
    """

    sources: np.ndarray | Names
    targets: np.ndarray | Names
    values: Mapping[str, np.ndarray]
    where: Callable[[int], str]
    state: Any
    read: int

    @property
    def size(self) -> int:
        """N."""
        return len(self.sources.table if isinstance(self.sources, Names) else self.sources)


class EdgeReader(abc.ABC):
    """Reads the edges of one file."""

    @property
    @abc.abstractmethod
    def path(self) -> Path:
        """The file."""

    @property
    @abc.abstractmethod
    def values(self) -> Mapping[str, Values]:
        """What edges have besides their ends."""

    @abc.abstractmethod
    def estimate(self) -> int:
        """How many edges there are, about: exactly where the file says so."""

    @abc.abstractmethod
    def chunks(self, state: Any = None) -> Iterator[Chunk]:
        """The edges in order, some at a time.

        Args:
            state: of the chunk before; None from the beginning.

        Raises:
            GraphError: the file is damaged or holds something else; names file and place.
            OSError: it cannot be read.
        """


class Wanted(NamedTuple):
    """Which columns to read of what has columns with names.

    Attributes:
        ids: what the ends are.
        source: the column of sources; None for the usual.
        target: likewise.
        values: the columns of values and their types, None for that in the file; None for all others.
        columns: the names of all columns of text, "-" for one to skip; None for those in the file.
        header: whether text begins with a line that names its columns.
        separator: between fields of text; empty for blanks, commas and semicolons.
        seed: of the hashes of names.
        piece: bytes that are read at once, about.
    """

    ids: Ids = "numbers"
    source: str | None = None
    target: str | None = None
    values: Mapping[str, np.dtype[Any] | None] | None = None
    columns: Sequence[str] | None = None
    header: bool = False
    separator: str | None = None
    seed: int = 0
    piece: int = 1 << 24


def roles(path: Path, names: Sequence[str], wanted: Wanted) -> tuple[str, str, dict[str, np.dtype[Any] | None]]:
    """Which columns are sources, targets and values.

    Args:
        path: of the file, for messages.
        names: of its columns, "-" for those to be skipped.
        wanted: what was asked for.

    Raises:
        GraphError: there is no such column.
    """
    known = [name for name in names if name != "-"]
    repeated = [name for name in known if known.count(name) > 1]
    if repeated:
        raise GraphError(f"{path}: two columns are called {repeated[0]!r}: name them by --columns")
    usual = ("source", "target") if {"source", "target"} <= set(known) else tuple(known[:2])
    if len(usual) < 2:
        raise GraphError(f"{path} has {len(known)} column{'s' * (len(known) != 1)}: edges have a source and a target")
    source, target = wanted.source or usual[0], wanted.target or usual[1]
    values = wanted.values
    if values is None:
        values = dict.fromkeys((name for name in known if name not in (source, target)), None)
    for name in (source, target, *values):
        if name not in known:
            raise GraphError(f"{path} has no column {name!r}: {did_you_mean(name, known)}")
    if source == target:
        raise GraphError(f"{path}: sources and targets are both column {source!r}: say --source and --target")
    return source, target, dict(values)


def ends_of(name: str, array: np.ndarray, wanted: Wanted) -> np.ndarray | Names:
    """Ends of edges from an array `[n]` of them.

    Args:
        name: what messages call it.
        array: integers or text.
        wanted: what they are.

    Raises:
        GraphError: they are neither, or not what is wanted.
    """
    kind = array.dtype.kind
    if wanted.ids == "names" and kind in "iuSUOT":
        return names_in([_bytes(name, value) for value in array.tolist()], wanted.seed)
    if kind not in "iu":
        advice = ": --ids names if vertices have names" if kind in "SUOT" else ""
        raise GraphError(f"{name} must hold integers, got {array.dtype}{advice}")
    if kind == "u" and array.dtype.itemsize == 8 and len(array) and int(array.max()) >= 2**63:
        raise GraphError(f"{name} holds {array.max()}, which does not fit int64")
    return array.astype(np.int64, copy=False)


def checked_values(name: str, stored: np.dtype[Any], row: tuple[int, ...], dtype: np.dtype[Any] | None) -> Values:
    """What values that are stored in a type come to.

    Raises:
        GraphError: they are no real numbers or truth values, or there are none for an edge.
    """
    if 0 in row:
        raise GraphError(f"{name} has {list(row)} numbers per edge: expected at least one")
    if stored.kind not in "fiub":
        raise GraphError(f"{name} must be real numbers, got {stored}: --values says which columns to take")
    return Values((dtype or stored).newbyteorder("="), row)


def _bytes(name: str, value: Any) -> bytes:
    text = value if isinstance(value, bytes) else str(value).encode()
    if value is None or not text:
        raise GraphError(f"{name} holds {value!r}, which is no name of a vertex")
    return text
