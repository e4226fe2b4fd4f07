"""Arrays of NumPy, memory-mapped if they are stored uncompressed, and edges from them and from sparse matrices."""

from __future__ import annotations

import contextlib
import gzip
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dorylax.graph.from_files.columns import EdgeFile
from dorylax.graph.from_files.tables import ArrayTable
from dorylax.graph.from_files.text import Wanted, packed_as
from dorylax.graph.mapped import release
from dorylax.graph.rows import spans
from dorylax.graph.stored import NPY_DAMAGE, open_arrays
from dorylax.graph.validate import GraphError
from dorylax.near_matches import did_you_mean


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
    with open_arrays(path) as archive:
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
    ends = {"edges[0]": edges[0], "edges[1]": edges[1]}
    return _edges(shown_as, "array of NumPy", ends, {}, wanted)


def npz(path: Path, shown_as: str, wanted: Wanted) -> EdgeFile:
    """Open an archive of NumPy or a matrix of `scipy.sparse.save_npz`. Raises a GraphError for anything else."""
    with open_arrays(path) as archive:
        names = archive.names
    if {"format", "shape", "data"} <= set(names):
        import scipy.sparse

        return _matrix(scipy.sparse.load_npz(path), "matrix of SciPy", shown_as, wanted)
    given: tuple[str, ...] = ("edge_index",)
    if wanted.source or wanted.target or "edge_index" not in names:
        given = (wanted.source or "sources", wanted.target or "targets")
    found = {one: member_array(path, one) for one in (wanted.values or {})}
    ends = [member_array(path, one) for one in given]
    if len(given) == 1:
        if ends[0].ndim != 2 or len(ends[0]) != 2:
            raise GraphError(f"{shown_as}: edge_index has shape {list(ends[0].shape)}, expected [2, E]")
        given, ends = ("edge_index[0]", "edge_index[1]"), list(ends[0])
    for one, array in [*zip(given, ends, strict=True), *found.items()]:
        if array.ndim < 1 or len(array) != len(ends[0]) or (one in given and array.ndim > 1):
            expected = [len(ends[0]), *array.shape[1:]]
            raise GraphError(f"{shown_as}: {one} has shape {list(array.shape)}, expected {expected}, one per edge")
    return _edges(shown_as, "archive of NumPy", dict(zip(given, ends, strict=True)), found, wanted)


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
