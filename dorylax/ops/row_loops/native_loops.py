"""Loops over entries by the native kernels."""

from __future__ import annotations

from typing import final

import numpy as np

from dorylax.ops import native
from dorylax.ops.native import Kernel, Reduction
from dorylax.ops.row_loops.loops import Loops
from dorylax.ops.row_loops.rows import Entries


@final
class NativeLoops(Loops):
    """Runs the native kernels; arrays of values have one dtype, which the kernels support."""

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
        edges = None if weight is None else rows.edges
        _compute(op, x, rows, index, out, weight=weight, edges=edges, own=own, other=other)

    def dot(self, own: np.ndarray, x: np.ndarray, rows: Entries, out: np.ndarray) -> None:
        """See `Loops`."""
        _compute("dot", x, rows, rows.neighbours, out, own=own)

    def expand(self, x: np.ndarray, rows: Entries, index: np.ndarray | None, out: np.ndarray) -> None:
        """See `Loops`."""
        _compute("expand", x, rows, index, out)


def _compute(
    kernel: Kernel,
    x: np.ndarray,
    rows: Entries,
    index: np.ndarray | None,
    out: np.ndarray,
    **more: np.ndarray | None,
) -> None:
    native.compute_rows(kernel, x, rows.offsets, index, out, begin=0, end=rows.num_rows, first_entry=rows.first, **more)
