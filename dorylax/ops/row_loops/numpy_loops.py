"""Loops over entries in NumPy and SciPy.

Sums over entries accumulate in float64: long sums must not lose digits, as in the kernels (kSpan in kernel/rows.h).
"""

from __future__ import annotations

from typing import Any, final

import jax.numpy as jnp
import numpy as np
import scipy.sparse

from dorylax.ops.native import Reduction
from dorylax.ops.row_loops.loops import Loops
from dorylax.ops.row_loops.rows import Entries

_NARROW = frozenset([np.dtype(np.float16), jnp.dtype(jnp.bfloat16)])
_FLOATS = _NARROW | {np.dtype(np.float32)}


def wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype for arithmetic on this dtype: float32 for bfloat16 and float16."""
    return np.dtype(np.float32) if dtype in _NARROW else dtype


@final
class NumpyLoops(Loops):
    """Runs NumPy and SciPy; supports values of any dtype."""

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
        """See `Loops`."""
        if own is not None and other is not None:
            same = _read(other, rows, index) == np.repeat(own, np.diff(rows.offsets), axis=0)
            x, index = np.where(same, _read(x, rows, index), x.dtype.type(0)), None
        if op in {"max", "min"}:
            _reduce_extremum(np.maximum if op == "max" else np.minimum, _read(x, rows, index), rows, out)
        else:
            _reduce_sum(x, rows, index, out, weight)

    def dot(self, own: np.ndarray, x: np.ndarray, rows: Entries, out: np.ndarray) -> None:
        """See `Loops`."""
        dtype = wide(own.dtype)
        ends = np.repeat(own.astype(dtype, copy=False), np.diff(rows.offsets), axis=0)
        out[...] = (ends * _read(x, rows, rows.neighbours).astype(dtype, copy=False)).sum(-1)

    def expand(self, x: np.ndarray, rows: Entries, index: np.ndarray | None, out: np.ndarray) -> None:
        """See `Loops`."""
        out[...] = np.repeat(x, np.diff(rows.offsets), axis=0) if index is None else _read(x, rows, index)


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
