"""Edges and vertices from sparse matrices and from arrays of NumPy, memory-mapped if they are stored uncompressed."""

from __future__ import annotations

import contextlib
import gzip
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, final

import numpy as np

from dorylax.graph.from_files.columns import ALLOW, EdgeFile, Values, checked_values, values_described
from dorylax.graph.from_files.database import Database
from dorylax.graph.from_files.text import Wanted, packed_as
from dorylax.graph.mapped import release
from dorylax.graph.npz import open_npz
from dorylax.graph.rows import spans
from dorylax.graph.stored import NPY_DAMAGE
from dorylax.graph.validate import GraphError
from dorylax.near_matches import did_you_mean

_PIECE = 1 << 19  # rows per insertion


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
        *,
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
        self.described = f"{shown_as}: {kind}, {self.estimate:,} edges, {values_described(self.values)}"

    def load(self, database: Database) -> None:
        """See `EdgeFile`."""
        append_arrays(
            database,
            "edges",
            self._arrays,
            lambda row, one: f"{self.where(database, row)}: {one}",
            kinds=self.values,
            ends=dict(zip("st", self._ends, strict=True)),
            as_end=self._end,
            nonfinite=self._wanted.nonfinite,
        )

    def where(self, database: Database, row: int) -> str:  # noqa: ARG002
        """See `EdgeFile`."""
        return f"{self.shown}, edge {row:,}: {tuple(end[row].item() for end in self._ends)}"

    def _end(self, part: np.ndarray, start: int) -> np.ndarray:
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


def append_arrays(
    database: Database,
    table: str,
    arrays: Mapping[str, np.ndarray],
    where: Callable[[int, str], str],
    *,
    kinds: Mapping[str, Values],
    ends: Mapping[str, np.ndarray] = {},
    as_end: Callable[[np.ndarray, int], np.ndarray] = lambda part, _: part,
    first: int = 0,
    nonfinite: bool,
) -> None:
    """Append rows to a table: columns of ends, and values `[E, …]` as the columns v`first`, ….

    Args:
        database: Holds the table.
        table: Its name.
        arrays: Values under their names.
        where: Describes the place of a value by its row and name.
        kinds: Types to keep the values in.
        ends: Other columns.
        as_end: Converts a piece of an end, given its first row.
        first: Number of the first column of values.
        nonfinite: Whether values may be infinite or NaN; else a GraphError names the first that is.
    """
    every = [*ends.values(), *arrays.values()]
    with database.transaction():
        for start, stop in spans(len(every[0]), _PIECE):
            columns = {end: as_end(np.ascontiguousarray(array[start:stop]), start) for end, array in ends.items()}
            number = first
            for one, array in arrays.items():
                with np.errstate(over="ignore"):  # large values become infinite
                    part = array[start:stop].astype(kinds[one].dtype)
                if part.dtype.kind == "f" and not nonfinite and not np.isfinite(part).all():
                    row = start + int(np.argwhere(~np.isfinite(part))[0][0])
                    raise GraphError(f"{where(row, one)} has a value that is not finite: {ALLOW}")
                held = part.astype(np.float64) if part.dtype.kind == "f" else part  # types that DuckDB stores
                for values in held.reshape(len(held), -1).T:
                    columns[f"v{number}"] = np.ascontiguousarray(values)
                    number += 1
            database.append(table, columns)
            release(*every)


def mapped_array(path: Path, shown_as: str | None = None) -> np.ndarray:
    """Return the array in a .npy file, memory-mapped. Raises a GraphError if the file is damaged, or holds no array."""
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

    Raises a GraphError if the archive is damaged, or lacks the array.
    """
    with open_npz(path) as archive:
        if member not in archive:
            raise GraphError(f"has no array {member}: {did_you_mean(member, archive.names)}")
        place = archive.place(member)
        if place is None or 0 in place.shape or not place.shape:
            return archive.fetch(member)
    return np.memmap(path, place.dtype, "r", place.offset, place.shape)


def pieces(array: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the rows of an array in pieces, and give its memory-mapped pages back."""
    width = max(1, math.prod(array.shape[1:]))
    for start, stop in spans(len(array), max(1, (1 << 22) // width)):
        yield array[start:stop]
        release(array)


def npy(path: Path, shown_as: str, wanted: Wanted) -> EdgeFile:
    """Open a .npy file with edges `[E, 2]` or `[2, E]`. Raises a GraphError for anything else."""
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


def npz(path: Path, shown_as: str, wanted: Wanted) -> EdgeFile:
    """Open an archive of NumPy or a matrix of `scipy.sparse.save_npz`. Raises a GraphError for anything else."""
    with open_npz(path) as archive:
        names = archive.names
    if {"format", "shape", "data"} <= set(names):
        import scipy.sparse

        return _matrix(scipy.sparse.load_npz(path), "matrix of SciPy", shown_as, wanted)
    given: tuple[str, ...] = ("edge_index",)
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


def matrix_market(path: Path, shown_as: str, wanted: Wanted) -> EdgeFile:
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
    values = dict.fromkeys(names, entries.data)
    ends = (entries.coords[0], entries.coords[1])
    return ArrayEdges(
        shown_as, kind, ends, values, wanted, num_vertices=entries.shape[0] if wanted.ids == "numbers" else None
    )
