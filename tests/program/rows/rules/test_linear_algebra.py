"""Factorisations, solvers and transforms."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest
from jax import lax

from dorylax.program.rows.errors import RowError
from dorylax.program.rows.types import Free, Rows, Summed

V, E, SUM, FREE = Rows("vertex", 0), Rows("edge", 0), Summed(), Free()

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
