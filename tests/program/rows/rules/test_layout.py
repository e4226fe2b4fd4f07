"""Operations that move elements."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest
from jax import lax

from dorylax.program.rows.errors import RowError
from dorylax.program.rows.types import Free, Rows, Summed

V, E, SUM, FREE = Rows("vertex", 0), Rows("edge", 0), Summed(), Free()


def test_reshape_keeps_rows_together(rows: Any):
    def to(*shape: Any) -> Any:
        return lambda x: x.reshape(shape)

    assert rows.results(to(-1, 2, 3), (V, ("n", 6))) == [V]
    assert rows.results(to(-1), (V, ("n", 6))) == [Rows("vertex", 0, 6)]
    assert rows.results(to(-1, 3), (V, ("n", 6))) == [Rows("vertex", 0, 2)]
    assert rows.results(to(1, -1, 6), (V, ("n", 6))) == [Rows("vertex", 1)]
    assert rows.results(to(-1, 6), (Rows("vertex", 0, 6), ("6*n",))) == [V]
    assert rows.results(to(2, -1), (Rows("vertex", 1), (2, "n", 6))) == [Rows("vertex", 1, 6)]


@pytest.mark.parametrize(
    ("shape", "axis", "to"),
    [((3, "n"), 1, (-1,)), (("n", 6), 0, (6, -1)), (("n", 6), 0, (2, -1)), ((2, "n", 6), 1, (-1, 6))],
)
def test_reshape_that_mixes_axes(rows: Any, shape: Any, axis: int, to: Any):
    with pytest.raises(RowError, match="mixes axes"):
        rows.results(lambda x: x.reshape(to), (Rows("vertex", axis), shape))


def test_entries_of_a_row_are_no_rows_of_their_own(rows: Any):
    flat = (Rows("vertex", 0, 6), ("6*n",))
    for fun in (lambda x: x.reshape(6, -1), lambda x: lax.rev(x, (0,)), lax.cumsum):
        with pytest.raises(RowError):
            rows.results(fun, flat)


def test_transpose_and_squeeze(rows: Any):
    assert rows.results(lambda x: x.transpose(2, 0, 1), (V, ("n", 2, 3))) == [Rows("vertex", 1)]
    assert rows.results(lambda x: x.squeeze((0, 2)), (Rows("vertex", 1), (1, "n", 1, 3))) == [V]
    assert rows.results(lambda x: x[None, :, None], (V, ("n", 3))) == [Rows("vertex", 1)]


def test_broadcast(rows: Any):
    assert rows.results(lambda x, p: jnp.broadcast_to(p, x.shape), (V, ("n", 3)), (FREE, (3,))) == [V]
    assert rows.results(lambda x: jnp.broadcast_to(x, (4, *x.shape)), (V, ("n", 3))) == [Rows("vertex", 1)]
    with pytest.raises(RowError, match="sum over vertices enters"):
        rows.results(lambda x, s: jnp.broadcast_to(s, x.shape), (V, ("n", 3)), (SUM, (3,)))
    with pytest.raises(RowError, match="two axes of rows"):
        rows.results(lambda x: jnp.broadcast_to(x, (x.shape[0], *x.shape)), (V, ("n", 3)))
    with pytest.raises(RowError, match=r"has size n \+ 1"):
        rows.results(lambda x: jnp.zeros(x.shape[0] + 1), (V, ("n", 3)))


def test_slices(rows: Any):
    assert rows.results(lambda x: lax.slice(x, (0, 1), (x.shape[0], 5), (1, 2)), (V, ("n", 6))) == [V]
    assert rows.results(lambda x: lax.dynamic_slice(x, (0, 1), (x.shape[0], 2)), (V, ("n", 6))) == [V]
    assert rows.results(lambda s: lax.slice(s, (1,), (3,)), (SUM, (6,))) == [SUM]
    for start, stop in ((1, 0), (0, -1)):
        with pytest.raises(RowError, match="axis"):
            rows.results(lambda x, a=start, b=stop: lax.slice(x, (a, 0), (x.shape[0] + b, 6)), (V, ("n", 6)))
    with pytest.raises(RowError, match="slice of the vertex axis"):
        rows.results(lambda x: lax.slice(x, (0, 0), (1, 6)), (V, ("n", 6)))


def test_slices_at_places_that_are_sums(rows: Any):
    with pytest.raises(RowError):
        rows.results(
            lambda x, s: lax.dynamic_slice(x, (0, s), (x.shape[0], 2)), (V, ("n", 6)), (SUM, ()), dtype=jnp.int32
        )


def test_update_of_a_part(rows: Any):
    update = lambda x, y: lax.dynamic_update_slice(x, y, (0, 2))  # noqa: E731
    assert rows.results(update, (V, ("n", 6)), (V, ("n", 2))) == [V]
    assert rows.results(update, (FREE, (2, 6)), (FREE, (1, 2))) == [FREE]
    with pytest.raises(RowError, match="replaces a part of the vertex axis"):
        rows.results(update, (V, ("n", 6)), (FREE, (1, 2)))
    put = lambda s: lax.dynamic_update_slice(jnp.zeros(6), s, (2,))  # noqa: E731
    assert rows.results(put, (SUM, (2,))) == [SUM]
    with pytest.raises(RowError):
        rows.results(lambda s: lax.dynamic_update_slice(jnp.ones(6), s, (2,)), (SUM, (2,)))


def test_pad(rows: Any):
    assert rows.results(lambda x: jnp.pad(x, ((0, 0), (1, 2))), (V, ("n", 6))) == [V]
    assert rows.results(lambda s: jnp.pad(s, 1), (SUM, (6,))) == [SUM]
    with pytest.raises(RowError):
        rows.results(lambda s: jnp.pad(s, 1, constant_values=1.0), (SUM, (6,)))
    with pytest.raises(RowError, match="along the vertex axis"):
        rows.results(lambda x: lax.pad(x, 0.0, ((0, 0, 1), (0, 0, 0))), (V, ("n", 6)))
    with pytest.raises(RowError, match="the number of rows is a parameter of pad"):
        rows.results(lambda x, p: lax.pad(p, 0.0, ((0, x.shape[0] - 1, 0),)), (V, ("n", 6)), (FREE, (1,)))


def test_joining(rows: Any):
    both = (V, ("n", 6)), (V, ("n", 6))
    assert rows.results(lambda x, y: lax.concatenate([x, y], 1), *both) == [V]
    assert rows.results(lambda x, y: jnp.stack([x, y], 2), *both) == [V]
    assert rows.results(lambda x, y: jnp.stack([x, y], 0), *both) == [Rows("vertex", 1)]
    assert rows.results(lambda x: lax.concatenate([x], 0), (V, ("n", 6))) == [V]
    assert rows.results(lambda s: jnp.stack([s, jnp.zeros(6), s]), (SUM, (6,))) == [SUM]
    with pytest.raises(RowError, match="along the vertex axis"):
        rows.results(lambda x, y: lax.concatenate([x, y], 0), *both)
    with pytest.raises(RowError, match="counted once per part"):
        rows.results(lambda x, p: jnp.concatenate([x.sum(0), p]), (V, ("n", 6)), (FREE, (6,)))


def test_iota(rows: Any):
    assert rows.results(lambda x: lax.broadcasted_iota(jnp.int32, x.shape, 1), (V, ("n", 6))) == [V]
    with pytest.raises(RowError, match="counts the edges"):
        rows.results(lambda a: lax.broadcasted_iota(jnp.int32, a.shape, 0), (E, ("e", 6)))
