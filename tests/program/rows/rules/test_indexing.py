"""Reading at computed places."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

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
