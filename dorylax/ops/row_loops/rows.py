"""A slice of compressed rows, as graph operators take it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dorylax.ops import native


class RowRange(NamedTuple):
    """R consecutive rows of a longer structure, without copies.

    Attributes:
        offsets: int64 `[R+1]`; entries of row r are `offsets[r]:offsets[r+1]` of `neighbours`. The first may exceed 0.
        neighbours: int32 `[≥ offsets[R]]`, the row of a neighbour operand that each entry reads.
        edges: int32 `[≥ offsets[R]]`, the row of an edge operand that each entry reads; None if entry k reads row
            k - offsets[0].
        first_row: Number of row 0 among the neighbours, which identifies self-loops.
    """

    offsets: np.ndarray
    neighbours: np.ndarray
    edges: np.ndarray | None = None
    first_row: int = 0


def packed(rows: RowRange, chosen: np.ndarray) -> RowRange:
    """Copy some rows of a range and their entries, one row after the other.

    Args:
        rows: A range without `edges`; its arrays are not checked.
        chosen: Numbers of its rows, ascending, int64.

    Returns:
        A copy, without the rows' numbers among the neighbours (`first_row`).
    """
    lengths = np.diff(rows.offsets)[chosen]
    offsets = np.append(0, np.cumsum(lengths))
    neighbours = np.empty(offsets[-1], np.int32)
    if native.status().available:
        native.pack_rows(contiguous(rows.offsets), contiguous(rows.neighbours), contiguous(chosen), neighbours)
    else:
        wanted = np.zeros(len(rows.offsets) - 1, bool)
        wanted[chosen] = True
        first, last = rows.offsets[0], rows.offsets[-1]
        neighbours[:] = rows.neighbours[first:last][np.repeat(wanted, np.diff(rows.offsets))]
    return RowRange(offsets, neighbours)


def kept(rows: RowRange, bits: np.ndarray) -> RowRange:
    """Copy a range without the entries of some neighbours.

    Args:
        rows: A range without `edges`; its arrays are not checked.
        bits: uint8, one bit for each possible neighbour, the lowest first (`numpy.packbits`): whether its entries stay.

    Returns:
        A copy.
    """
    length = int(rows.offsets[-1] - rows.offsets[0])
    if native.status().available:
        offsets, neighbours = np.empty(len(rows.offsets), np.int64), np.empty(length + 1, np.int32)
        native.keep_neighbours(contiguous(rows.offsets), contiguous(rows.neighbours), bits, offsets, neighbours)
        return RowRange(offsets, neighbours[: offsets[-1]], None, rows.first_row)
    mine = rows.neighbours[rows.offsets[0] : rows.offsets[-1]]
    stays = (bits[mine >> 3] >> (mine & 7) & 1).astype(bool)
    offsets = np.append(0, np.cumsum(stays))[rows.offsets - rows.offsets[0]]
    return RowRange(offsets, mine[stays], None, rows.first_row)


class Entries(NamedTuple):
    """A checked row range.

    Attributes:
        offsets, neighbours, edges, first_row: As in `RowRange`, contiguous.
        num_rows: R.
        first: Offsets[0].
        last: Offsets[R].
    """

    offsets: np.ndarray
    neighbours: np.ndarray
    edges: np.ndarray | None
    first_row: int
    num_rows: int
    first: int
    last: int

    @property
    def num_entries(self) -> int:
        """Number of entries of the rows."""
        return self.last - self.first


def checked(rows: RowRange) -> Entries:
    """Make the fast checks: dtypes, shapes and the ends, but not each offset or neighbour.

    Raises:
        ValueError: An array has the wrong dtype or shape, or the rows end past it.
    """
    offsets = _indices("offsets", rows.offsets, np.int64)
    neighbours = _indices("neighbours", rows.neighbours, np.int32)
    edges = None if rows.edges is None else _indices("edges", rows.edges, np.int32)
    if not len(offsets):
        raise ValueError("offsets must have shape [R+1], got [0]")
    first, last = int(offsets[0]), int(offsets[-1])
    length = len(neighbours) if edges is None else min(len(neighbours), len(edges))
    if not 0 <= first <= last <= length:
        raise ValueError(
            f"offsets must begin and end in 0 … {length}, the length of neighbours and edges; got {first} … {last}"
        )
    return Entries(offsets, neighbours, edges, rows.first_row, len(offsets) - 1, first, last)


def contiguous(array: np.ndarray) -> np.ndarray:
    """Return the array, copied if it is not C-contiguous and aligned."""
    flags = array.flags
    return array if flags.c_contiguous and flags.aligned else np.require(array, requirements=("C", "A"))


def _indices(name: str, array: np.ndarray, dtype: Any) -> np.ndarray:
    if array.dtype != dtype or array.ndim != 1:
        raise ValueError(f"{name} must be {np.dtype(dtype)} with one axis, got {array.dtype} {list(array.shape)}")
    return contiguous(array)
