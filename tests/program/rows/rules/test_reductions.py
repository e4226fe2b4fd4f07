"""Reductions, windows, cumulative operations, sorting, and matrices."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from dorylax.program.rows.errors import RowError
from dorylax.program.rows.types import Free, Rows, Summed

V, E, SUM, FREE = Rows("vertex", 0), Rows("edge", 0), Summed(), Free()


@pytest.mark.parametrize("name", ["max", "min", "prod", "argmax", "argmin"])
def test_reductions_over_rows(rows: Any, name: str):
    assert rows.results(lambda x: getattr(x, name)(axis=1), (V, ("n", 6))) == [V]
    assert rows.results(lambda x: getattr(x, name)(axis=0), (Rows("edge", 1), (6, "e"))) == [E]
    with pytest.raises(RowError, match="reduction over the edge axis"):
        rows.results(lambda x: getattr(x, name)(axis=0), (E, ("e", 6)))
    with pytest.raises(RowError, match="sum over vertices enters"):
        rows.results(lambda s: getattr(s, name)(axis=0), (SUM, (6,)))


def test_sums(rows: Any):
    assert rows.results(lambda x: x.sum(0), (V, ("n", 6))) == [SUM]
    assert rows.results(lambda x: x.sum(), (Rows("vertex", 0, 6), ("6*n",))) == [SUM]
    assert rows.results(lambda x: x.sum(0).sum() * 2, (V, ("n", 6))) == [SUM]
    assert rows.results(lambda x, a: x.sum() + a.sum(), (V, ("n", 6)), (E, ("e", 6))) == [SUM]
    (found,) = rows.results(lambda a: a.sum(), (E, ("e",)))
    assert found.origin.space == "edge"
    assert found.origin.equation.primitive.name == "reduce_sum"


def test_own_reducer(rows: Any):
    reduce = lambda axis: lambda x: lax.reduce(x, 1.0, lambda a, b: a * b + 1, (axis,))  # noqa: E731
    assert rows.results(reduce(1), (V, ("n", 6))) == [V]
    assert rows.results(reduce(0), (FREE, (6,))) == [FREE]
    with pytest.raises(RowError, match="reduction over the vertex axis"):
        rows.results(reduce(0), (V, ("n", 6)))
    with pytest.raises(RowError):
        rows.results(reduce(0), (SUM, (6,)))
    with pytest.raises(RowError):
        rows.results(lambda x, s: lax.reduce(x, s, lambda a, b: a * b + 1, (1,)), (V, ("n", 6)), (SUM, ()))


@pytest.mark.parametrize("fun", [lax.cumsum, lax.cumprod, lax.cummax, lax.cummin, lax.cumlogsumexp, lax.sort])
def test_along_an_axis(rows: Any, fun: Any):
    keyword = "dimension" if fun is lax.sort else "axis"
    assert rows.results(lambda x: fun(x, **{keyword: 1}), (V, ("n", 6))) == [V]
    with pytest.raises(RowError, match="along the vertex axis"):
        rows.results(lambda x: fun(x, **{keyword: 0}), (V, ("n", 6)))
    if fun is lax.cumsum:
        assert rows.results(fun, (SUM, (6,))) == [SUM]
    else:
        with pytest.raises(RowError):
            rows.results(fun, (SUM, (6,)))


def test_sort_of_several(rows: Any):
    both = (V, ("n", 6)), (V, ("n", 6))
    assert rows.results(lambda x, y: lax.sort((x, y), dimension=1), *both) == [V, V]
    with pytest.raises(RowError, match="sort along the vertex axis"):
        rows.results(lambda x, y: lax.sort((x, y), dimension=0), *both)


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


SQUARE = (V, ("n", 3, 3))


@pytest.mark.parametrize(
    ("fun", "count"),
    [
        (jnp.linalg.cholesky, 1),
        (jnp.linalg.qr, 2),
        (jnp.linalg.eigh, 2),
        (jnp.linalg.svd, 3),
        (lax.linalg.lu, 3),
        (lax.linalg.tridiagonal, 4),
        (jnp.fft.fft2, 1),
        (jnp.linalg.det, 1),
    ],
)
def test_a_matrix_for_each_row(rows: Any, fun: Any, count: int):
    assert rows.results(fun, SQUARE) == [V] * count


@pytest.mark.parametrize("fun", [jnp.linalg.qr, jnp.fft.fft, lax.linalg.lu])
def test_a_matrix_of_rows(rows: Any, fun: Any):
    with pytest.raises(RowError, match="of a matrix that spans vertex rows"):
        rows.results(fun, (Rows("vertex", 1), (3, "n")))


def test_triangular_solve(rows: Any):
    def solve(left: bool) -> Any:
        return lambda a, b: lax.linalg.triangular_solve(a, b, left_side=left, lower=True)

    assert rows.results(solve(True), SQUARE, (V, ("n", 3, 2))) == [V]
    assert rows.results(solve(True), (FREE, (3, 3)), (Rows("vertex", 1), (3, "n"))) == [Rows("vertex", 1)]
    assert rows.results(solve(False), (FREE, (3, 3)), (V, ("n", 3))) == [V]
    assert rows.results(solve(True), (FREE, (3, 3)), (SUM, (3, 2))) == [SUM]
    with pytest.raises(RowError):
        rows.results(solve(True), (SUM, (3, 3)), (SUM, (3, 2)))
    with pytest.raises(RowError):
        rows.results(jnp.linalg.cholesky, (SUM, (3, 3)))
