"""Matrix products and convolutions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from dorylax.program.rows.errors import RowError
from dorylax.program.rows.types import Free, Rows, Summed

V, E, SUM, FREE = Rows("vertex", 0), Rows("edge", 0), Summed(), Free()


def test_rows_and_parameters(rows: Any):
    x, p = (V, ("n", 6)), (FREE, (6, 3))
    assert rows.results(lambda x, p: x @ p, x, p) == [V]
    assert rows.results(lambda x, p: p.T @ x.T, x, p) == [Rows("vertex", 1)]
    assert rows.results(lambda x, p: jnp.einsum("nai,ij->ajn", x, p), (V, ("n", 2, 6)), p) == [Rows("vertex", 2)]
    assert rows.results(
        lambda x, p: jnp.einsum("hni,hij->hnj", x, p), (Rows("vertex", 1), (2, "n", 6)), (FREE, (2, 6, 3))
    ) == [Rows("vertex", 1)]
    assert rows.results(lambda x, p: x @ p, (Rows("vertex", 0, 2), ("2*n", 6)), p) == [Rows("vertex", 0, 2)]


def test_rows_and_rows(rows: Any):
    both = (V, ("n", 6)), (V, ("n", 6))
    assert rows.results(lambda x, y: jnp.einsum("ni,nj->nij", x, y), *both) == [V]
    assert rows.results(lambda x, y: x.T @ y, *both) == [SUM]
    assert rows.results(lambda x, y: jnp.einsum("ni,ni->", x, y), *both) == [SUM]
    with pytest.raises(RowError, match="product of every vertex with every other"):
        rows.results(lambda x, y: x @ y.T, *both)


def test_sums_and_parameters(rows: Any):
    assert rows.results(lambda s, p: s @ p, (SUM, (2, 6)), (FREE, (6, 3))) == [SUM]
    for other in ((SUM, (6, 3)), (Rows("vertex", 1), (6, "n"))):
        with pytest.raises(RowError):
            rows.results(lambda s, p: s @ p, (SUM, (2, 6)), other)


def test_convolutions(rows: Any):
    def conv(x: Any, k: Any) -> Any:
        return lax.conv_general_dilated(x, k, (1,), "SAME")

    x, kernel = (V, ("n", 2, 6)), (FREE, (4, 2, 3))
    assert rows.results(conv, x, kernel) == [V]
    assert rows.results(conv, (FREE, (5, 2, 6)), (V, ("n", 2, 3))) == [Rows("vertex", 1)]
    assert rows.results(conv, (SUM, (5, 2, 6)), kernel) == [SUM]
    with pytest.raises(RowError, match="convolution over the vertex axis"):
        rows.results(conv, (Rows("vertex", 2), (1, 2, "n")), kernel)


def test_gradient_of_a_kernel(rows: Any):
    for groups in (1, 2):

        def pullback(x: Any, k: Any, g: Any, groups: int = groups) -> Any:
            def conv(k: Any) -> Any:
                return lax.conv_general_dilated(x, k, (1,), "SAME", feature_group_count=groups)

            return jax.vjp(conv, k)[1](g)[0]

        inputs = (V, ("n", 2, 6)), (FREE, (4, 2 // groups, 3)), (V, ("n", 4, 6))
        assert rows.results(pullback, *inputs) == [SUM]
