"""The loops over entries that all graph operators are made of: the contract, which `native_loops` and `numpy_loops` meet."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from dorylax.ops.native import Reduction
from dorylax.ops.row_loops.rows import Entries

Arrays = list[np.ndarray]


class Loops(ABC):
    """Loops over the entries of some rows. Arguments are checked and arrays contiguous; nothing is kept."""

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
        """Reduces each row's entries; an empty row gives 0.

        Args:
            op: the reduction.
            x: `[N, H, F]`.
            rows: the rows.
            index: the row of `x` (and of `other`) that each entry reads; None where entry k reads row k - rows.first.
            out: where results go, `[R, H, F]`.
            weight: for "weighted_sum", `[edges, H]`, read by `rows.edges`.
            own: for "select_sum", `[R, H, F]`.
            other: for "select_sum", `[N, H, F]`.
        """

    @abstractmethod
    def dot(self, own: np.ndarray, x: np.ndarray, rows: Entries, out: np.ndarray) -> None:
        """Multiplies the ends of each entry.

        Args:
            own: `[R, H, F]`.
            x: `[N, H, F]`, read by `rows.neighbours`.
            rows: the rows.
            out: where sums over F of the products go, `[entries, H]`.
        """

    @abstractmethod
    def expand(self, x: np.ndarray, rows: Entries, index: np.ndarray | None, out: np.ndarray) -> None:
        """Copies rows to entries.

        Args:
            x: `[N, H, F]`, or `[R, H, F]` without `index`.
            rows: the rows.
            index: the row of `x` that each entry reads; None for the entry's own row.
            out: where copies go, `[entries, H, F]`.
        """
