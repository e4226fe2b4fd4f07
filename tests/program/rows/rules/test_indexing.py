"""Reading and writing at computed places."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from dorylax.program.rows.errors import RowError
from dorylax.program.rows.types import Free, Rows, Summed

V, E, SUM, FREE = Rows("vertex", 0), Rows("edge", 0), Summed(), Free()

I32 = jnp.int32


def test_the_same_places_of_all_rows(rows: Any):
    assert rows.results(lambda x, k: x[:, k.astype(I32)], (V, ("n", 6)), (FREE, (4,))) == [V]
    assert rows.results(lambda x, k: x[k.astype(I32)], (Rows("vertex", 1), (6, "n")), (FREE, (4,))) == [
        Rows("vertex", 1)
    ]
    assert rows.results(lambda x: x[:, 1], (V, ("n", 6))) == [V]
    assert rows.results(lambda x: x[1, :, 2:4], (Rows("vertex", 1), (6, "n", 6))) == [V]


def test_own_places_of_each_row(rows: Any):
    x, k = (V, ("n", 6)), (V, ("n", 2))
    assert rows.results(lambda x, k: jnp.take_along_axis(x, k.astype(I32), 1), x, k) == [V]
    assert rows.results(lambda x, k: jax.vmap(lambda r, i: r[i])(x, k.astype(I32)), x, k) == [V]


def test_lookup(rows: Any):
    table = (FREE, (5, 4))
    assert rows.results(lambda t, k: t[k.astype(I32)], table, (V, ("n",))) == [V]
    assert rows.results(lambda t, k: t[k.astype(I32)], table, (Rows("vertex", 1), (3, "n"))) == [Rows("vertex", 1)]
    assert rows.results(lambda t, k: t[:, k.astype(I32)], table, (E, ("e", 2))) == [Rows("edge", 1)]
    assert rows.results(lambda t, k: t[k.astype(I32)], table, (Rows("vertex", 0, 2), ("2*n",))) == [
        Rows("vertex", 0, 2)
    ]
    assert rows.results(lambda t, k: t[k.astype(I32)], table, (FREE, (3,))) == [FREE]


def test_places_of_rows(rows: Any):
    for k in ((FREE, (3,)), (V, ("n",)), (V, ("n", 1))):
        with pytest.raises(RowError, match="indexing of the vertex axis"):
            rows.results(lambda x, k: x[k.astype(I32)], (V, ("n", 6)), k)
    with pytest.raises(RowError, match="vertices and edges meet"):
        rows.results(lambda x, k: x[k.astype(I32)], (V, ("n", 6)), (E, ("e",)))
    with pytest.raises(RowError, match="indexing of the vertex axis"):
        rows.results(lambda x, k: jnp.take_along_axis(x, k.astype(I32), 0), (V, ("n", 6)), (FREE, (1, 6)))
    with pytest.raises(RowError):
        rows.results(lambda x, k: x[k.astype(I32)], (Rows("vertex", 0, 2), ("2*n",)), (V, ("n",)))


def test_places_in_sums(rows: Any):
    s, k = (SUM, (6,)), (FREE, (2,))
    assert rows.results(lambda s, k: s[k.astype(I32)], s, k) == [SUM]
    assert rows.results(lambda s, k: s.at[k.astype(I32)].get(mode="fill"), s, k) == [SUM]
    assert rows.results(lambda s, k: s.at[k.astype(I32)].get(mode="fill", fill_value=0), s, k) == [SUM]
    with pytest.raises(RowError):
        rows.results(lambda s, k: s.at[k.astype(I32)].get(mode="fill", fill_value=1), s, k)
    with pytest.raises(RowError):
        rows.results(lambda s, k: s[k], s, (V, ("n",)), dtype=I32)
    with pytest.raises(RowError):
        rows.results(lambda s, p: p[s], s, (FREE, (6,)), dtype=I32)


X = (V, ("n", 6))


@pytest.mark.parametrize("how", ["set", "add", "subtract", "multiply", "max", "min"])
def test_writes_to_the_same_places_of_all_rows(rows: Any, how: str):
    def write(x: Any, k: Any, y: Any) -> Any:
        return getattr(x.at[:, k.astype(I32)], how)(y)

    assert rows.results(write, X, (FREE, (2,)), (V, ("n", 2))) == [V]


@pytest.mark.parametrize("how", ["set", "add", "max"])
def test_writes_to_own_places_of_each_row(rows: Any, how: str):
    def write(x: Any, k: Any, y: Any) -> Any:
        return jax.vmap(lambda r, i, u: getattr(r.at[i], how)(u))(x, k.astype(I32), y)

    assert rows.results(write, X, (V, ("n", 2)), (V, ("n", 2))) == [V]


def test_writes_to_places_of_rows(rows: Any):
    for k, y in (((FREE, (2,)), (FREE, (2, 6))), ((V, ("n",)), X), ((FREE, ()), (FREE, (6,)))):
        with pytest.raises(RowError, match="writes to places of the vertex axis"):
            rows.results(lambda x, k, y: x.at[k.astype(I32)].add(y), X, k, y)
    numbers = lax.ScatterDimensionNumbers((0, 1), (), (0,))
    with pytest.raises(RowError, match="writes to a part of the vertex axis"):
        rows.results(lambda x, y: lax.scatter(x, jnp.zeros(1, I32), y, numbers), X, (FREE, (1, 6)))


def test_sums_into_a_table(rows: Any):
    k = (V, ("n",))
    zeros = lambda k, y: jnp.zeros((5, 6)).at[k.astype(I32)].add(y)  # noqa: E731
    assert rows.results(zeros, k, X) == [SUM]
    assert rows.results(lambda k, y: jnp.zeros((5, 6)).at[k.astype(I32)].subtract(y), k, X) == [SUM]
    assert rows.results(lambda s, k, y: s.at[k.astype(I32)].add(y), (SUM, (5, 6)), k, X) == [SUM]
    with pytest.raises(RowError, match="does not begin at zero"):
        rows.results(lambda k, y: jnp.ones((5, 6)).at[k.astype(I32)].add(y), k, X)
    with pytest.raises(RowError, match="does not begin at zero"):
        rows.results(lambda p, k, y: p.at[k.astype(I32)].add(y), (FREE, (5, 6)), k, X)
    for how in ("set", "max", "min", "multiply"):
        with pytest.raises(RowError, match="writes of different vertices to one table"):
            rows.results(lambda k, y, how=how: getattr(jnp.zeros((5, 6)).at[k.astype(I32)], how)(y), k, X)


def test_gradient_of_lookups(rows: Any):
    def pullback(t: Any, k: Any, g: Any) -> Any:
        return jax.vjp(lambda t: t[k.astype(I32)], t)[1](g)[0]

    assert rows.results(pullback, (FREE, (5, 6)), (V, ("n",)), X) == [SUM]
    assert rows.results(pullback, (FREE, (5, 6)), (E, ("e", 2)), (E, ("e", 2, 6))) == [SUM]


def test_sums_at_places_without_rows(rows: Any):
    s, k = (SUM, (2,)), (FREE, (2,))
    assert rows.results(lambda s, k: jnp.zeros(6).at[k.astype(I32)].add(s), s, k) == [SUM]
    assert rows.results(lambda s, k: s.at[k.astype(I32)].add(jnp.zeros(2)), s, k) == [SUM]
    for fun in (
        lambda s, k: jnp.ones(6).at[k.astype(I32)].add(s),
        lambda s, k: jnp.zeros(6).at[k.astype(I32)].set(s),
        lambda s, k: jnp.zeros(6).at[k.astype(I32)].max(s),
        lambda s, k: s.at[k.astype(I32)].add(1.0),
    ):
        with pytest.raises(RowError):
            rows.results(fun, s, k)
    with pytest.raises(RowError):
        rows.results(lambda s, p: p.at[s].add(1), s, (FREE, (6,)), dtype=I32)
    with pytest.raises(RowError):
        rows.results(lambda s, x: x.at[:, 0].set(s[0]), s, X)
