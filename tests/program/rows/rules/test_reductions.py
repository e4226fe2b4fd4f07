"""Reductions, cumulative operations and sorting."""

from __future__ import annotations

from typing import Any

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
