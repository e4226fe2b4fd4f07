"""A sum of pytrees in a given order, whatever the order in which they come."""

from __future__ import annotations

from typing import Any, final

import jax
import numpy as np

from dorylax.pipeline.parameters.messages import Tree


@final
class OrderedSum:
    """Adds terms 0 … count-1 as `((t0 + t1) + t2) + …`, bit for bit the same for any order of arrival.

    A term is kept only until those before it have come.

    Args:
        count: how many terms there are.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._waiting: dict[int, Tree] = {}
        self._added = 0
        self._total: Tree = None

    def add(self, place: int, term: Tree) -> None:
        """Adds a term; each place once."""
        self._waiting[place] = term
        while self._added in self._waiting:
            following = self._waiting.pop(self._added)
            if self._added:
                jax.tree.map(_accumulate, self._total, following)
            else:
                self._total = jax.tree.map(lambda leaf: np.array(leaf, copy=True), following)
            self._added += 1

    @property
    def total(self) -> Tree | None:
        """The sum, arrays on the host; None while a term is missing."""
        return self._total if self._added == self._count else None


def _accumulate(total: np.ndarray, term: Any) -> None:
    np.add(total, np.asarray(term), out=total)
