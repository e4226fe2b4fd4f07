"""Evaluations: sums of a metric over the rows of each mask, computed in one piece or in parts that add up."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

RowSums = Callable[[Any, Any, Any], Any]
"""Metrics as sums over the rows of each mask: `(output, labels, masks) -> [M, …]`, with masks bool `[M, n]`."""


class Evaluated(NamedTuple):
    """Result of an evaluation, or the contribution of some rows to it.

    Attributes:
        sums: Sums of `RowSums`, `[M, …]`.
        nan: Whether any output is NaN.
    """

    sums: Any
    nan: bool

    @classmethod
    def of(cls, parts: Sequence[Evaluated]) -> Evaluated:
        """Return the total of several contributions, added in order."""
        total = parts[0].sums
        for part in parts[1:]:
            total = total + part.sums
        return cls(total, any(part.nan for part in parts))


def evaluate(sums: RowSums, output: Any, labels: Any, masks: Any) -> tuple[Any, Any]:
    """Return the sums over some rows, and whether their output has a NaN. May be traced."""
    floats = (leaf for leaf in jax.tree.leaves(output) if jnp.issubdtype(leaf.dtype, jnp.floating))
    nan = functools.reduce(jnp.logical_or, (jnp.isnan(leaf).any() for leaf in floats), jnp.bool_(False))
    return sums(output, labels, masks), nan


@functools.lru_cache(maxsize=8)
def evaluation_of_rows(sums: RowSums) -> Callable[[Any, Any, Any], Evaluated]:
    """Return `(output, labels, masks) -> Evaluated` for some rows, compiled once in a process for equal shapes.

    Floating-point sums are returned in float64, in which they are added up.
    """
    compiled = jax.jit(functools.partial(evaluate, sums))

    def evaluated(output: Any, labels: Any, masks: Any) -> Evaluated:
        found, nan = jax.device_get(compiled(output, labels, masks))
        exact = np.issubdtype(np.asarray(found).dtype, np.integer)
        return Evaluated(np.asarray(found, None if exact else np.float64), bool(nan))

    return evaluated
