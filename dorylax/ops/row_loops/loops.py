"""Contract of the loops over entries from which all graph operators are built (`native_loops`, `numpy_loops`)."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from dorylax.ops.native import Reduction
from dorylax.ops.row_loops.rows import Entries

Arrays = list[np.ndarray]


class Loops(ABC):
    """Loops over the entries of some rows, without state; arguments are already checked, and arrays contiguous."""

    @abstractmethod
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

    @abstractmethod
    def dot(self, own: np.ndarray, x: np.ndarray, rows: Entries, out: np.ndarray) -> None:
        """Multiply the ends of each entry.

        Args:
            own: `[R, H, F]`.
            x: `[N, H, F]`, read by `rows.neighbours`.
            rows: The rows.
            out: Sums over F of the products, `[entries, H]`.
        """

    @abstractmethod
    def expand(self, x: np.ndarray, rows: Entries, index: np.ndarray | None, out: np.ndarray) -> None:
        """Copy rows to entries.

        Args:
            x: `[N, H, F]`, or `[R, H, F]` without `index`.
            rows: The rows.
            index: Row of `x` that each entry reads; None: the entry's own row.
            out: Copies, `[entries, H, F]`.
        """
