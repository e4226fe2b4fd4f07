"""The loops over the entries of some rows from which all graph operators are built: native kernels, or NumPy and SciPy.

In NumPy, sums over entries accumulate in float64: long sums must not lose digits, as in the kernels (kSpan in
kernel/rows.h).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.sparse

from dorylax.ops import native
from dorylax.ops.native import Kernel, Reduction
from dorylax.ops.row_loops.rows import Entries

Arrays = list[np.ndarray]

_NARROW = frozenset([np.dtype(np.float16), jnp.dtype(jnp.bfloat16)])
_FLOATS = _NARROW | {np.dtype(np.float32)}


def wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype for arithmetic on this dtype: float32 for bfloat16 and float16."""
    return np.dtype(np.float32) if dtype in _NARROW else dtype


class Loops(NamedTuple):
    """Loops over the entries of some rows; arguments are already checked, and arrays contiguous.

    Attributes:
        native: Whether native kernels run; arrays of values then have one dtype, which the kernels support. NumPy supports
            values of any dtype.
    """

    native: bool

    def reduce(
        self,
        op: Reduction,
        x: np.ndarray,
        rows: Entries,
        index: np.ndarray | None,
        out: np.ndarray,
        *,
        weight: np.ndarray | None = None,
        own: np.ndarray | None = None,
        other: np.ndarray | None = None,
    ) -> None:
        """Reduce each row's entries; an empty row gives 0.

        Args:
            op: The reduction.
            x: `[N, H, F]`.
            rows: The rows.
            index: Row of `x` (and of `other`) that each entry reads; None if entry k reads row k - rows.first.
            out: Results, `[R, H, F]`.
            weight: `[edges, H]`, read by `rows.edges`, for "weighted_sum".
            own: `[R, H, F]`, for "select_sum".
            other: `[N, H, F]`, for "select_sum".
        """
        if self.native:
            edges = None if weight is None else rows.edges
            _compute(op, x, rows, index, out, weight=weight, edges=edges, own=own, other=other)
            return
        if own is not None and other is not None:
            same = _read(other, rows, index) == np.repeat(own, np.diff(rows.offsets), axis=0)
            x, index = np.where(same, _read(x, rows, index), x.dtype.type(0)), None
        if op in {"max", "min"}:
            _reduce_extremum(np.maximum if op == "max" else np.minimum, _read(x, rows, index), rows, out)
        else:
            _reduce_sum(x, rows, index, out, weight)

    def dot(self, own: np.ndarray, x: np.ndarray, rows: Entries, out: np.ndarray) -> None:
        """Multiply the ends of each entry.

        Args:
            own: `[R, H, F]`.
            x: `[N, H, F]`, read by `rows.neighbours`.
            rows: The rows.
            out: Sums over F of the products, `[entries, H]`.
        """
        if self.native:
            _compute("dot", x, rows, rows.neighbours, out, own=own)
            return
        dtype = wide(own.dtype)
        ends = np.repeat(own.astype(dtype, copy=False), np.diff(rows.offsets), axis=0)
        out[...] = (ends * _read(x, rows, rows.neighbours).astype(dtype, copy=False)).sum(-1)

    def expand(self, x: np.ndarray, rows: Entries, index: np.ndarray | None, out: np.ndarray) -> None:
        """Copy rows to entries.

        Args:
            x: `[N, H, F]`, or `[R, H, F]` without `index`.
            rows: The rows.
            index: Row of `x` that each entry reads; None: the entry's own row.
            out: Copies, `[entries, H, F]`.
        """
        if self.native:
            _compute("expand", x, rows, index, out)
        else:
            out[...] = np.repeat(x, np.diff(rows.offsets), axis=0) if index is None else _read(x, rows, index)


def _compute(
    kernel: Kernel,
    x: np.ndarray,
    rows: Entries,
    index: np.ndarray | None,
    out: np.ndarray,
    **more: np.ndarray | None,
) -> None:
    native.compute_rows(kernel, x, rows.offsets, index, out, begin=0, end=rows.num_rows, first_entry=rows.first, **more)


def _reduce_extremum(function: np.ufunc, values: np.ndarray, rows: Entries, out: np.ndarray) -> None:
    full = np.diff(rows.offsets) > 0
    out[~full] = 0
    if full.any():
        # reduceat needs non-empty segments, so empty rows are skipped; the segments around them are adjacent.
        out[full] = function.reduceat(values, rows.offsets[:-1][full] - rows.first, axis=0)


def _reduce_sum(
    x: np.ndarray, rows: Entries, index: np.ndarray | None, out: np.ndarray, weight: np.ndarray | None
) -> None:
    """Multiply with sparse matrices, one for each head with weights: ten times as fast as np.add.reduceat."""
    if index is not None and len(x) > rows.num_entries:
        x, index = _read(x, rows, index), None
    if x.dtype in _FLOATS:
        x = x.astype(np.float64)
    columns = np.arange(rows.num_entries) if index is None else index[rows.first : rows.last]
    if weight is None:
        weights = np.ones((rows.num_entries, 1), x.dtype)
        width = x.shape[1] * x.shape[2]
        x, out = x.reshape(len(x), 1, width), out.reshape(len(out), 1, width)
    else:
        weights = _read(weight, rows, rows.edges).astype(x.dtype, copy=False)
    for head in range(weights.shape[1]):
        matrix = scipy.sparse.csr_array(
            (weights[:, head], columns, rows.offsets - rows.first), shape=(rows.num_rows, len(x))
        )
        out[:, head] = matrix @ x[:, head]


def _read(x: np.ndarray, rows: Entries, index: np.ndarray | None) -> np.ndarray:
    """Return the row of `x` that each entry reads."""
    return x[: rows.num_entries] if index is None else x[index[rows.first : rows.last]]
