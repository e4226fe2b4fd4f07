"""Sliding windows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from dorylax.program.rows.errors import RowError
from dorylax.program.rows.types import Free, Rows, Summed

V, E, SUM, FREE = Rows("vertex", 0), Rows("edge", 0), Summed(), Free()


def _pool(x: Any, widths: Any, padding: Any = "VALID", strides: Any = None, by: Any = lax.max) -> Any:
    return lax.reduce_window(x, -jnp.inf if by is lax.max else 0.0, by, widths, strides or (1,) * x.ndim, padding)


@pytest.mark.parametrize("by", [lax.max, lax.add, lambda a, b: a * 2 + b])
def test_windows_over_features(rows: Any, by: Any):
    assert rows.results(lambda x: _pool(x, (1, 2), strides=(1, 2), by=by), (V, ("n", 6))) == [V]
    assert rows.results(lambda x: _pool(x, (2,), by=by), (FREE, (6,))) == [FREE]


@pytest.mark.parametrize(
    "options",
    [
        {"widths": (2, 1), "padding": ((1, 0), (0, 0))},
        {"widths": (1, 1), "padding": ((1, -1), (0, 0))},
        {"widths": (1, 1), "padding": ((1, 0), (0, 0)), "strides": (1, 1)},
    ],
)
def test_windows_over_rows(rows: Any, options: Any):
    with pytest.raises(RowError, match="a window over the vertex axis"):
        rows.results(lambda x: _pool(x, **options), (V, ("n", 6)))


def test_windows_of_sums(rows: Any):
    with pytest.raises(RowError):
        rows.results(lambda s: _pool(s, (2,)), (SUM, (6,)))
    with pytest.raises(RowError):
        rows.results(
            lambda x, s: lax.reduce_window(x, s, lambda a, b: a * 2 + b, (1, 2), (1, 1), "VALID"),
            (V, ("n", 6)),
            (SUM, ()),
        )


def test_derivatives_of_pooling(rows: Any):
    def tangent(x: Any, t: Any) -> Any:
        return jax.jvp(lambda x: _pool(x, (1, 2)), (x,), (t,))[1]

    assert rows.results(tangent, (V, ("n", 6)), (V, ("n", 6))) == [V]
    pullback = lambda x, g: jax.vjp(lambda x: _pool(x, (1, 2)), x)[1](g)[0]  # noqa: E731
    assert rows.results(pullback, (V, ("n", 6)), (V, ("n", 5))) == [V]
