"""Elementwise operations, which of them sums over rows may go through, and random numbers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from dorylax.program.rows.errors import RowError
from dorylax.program.rows.types import Free, Rows, Summed

V, E, SUM, FREE = Rows("vertex", 0), Rows("edge", 0), Summed(), Free()


@pytest.mark.parametrize(
    "fun",
    [
        lambda s, p: -s,
        lambda s, p: s + s,
        lambda s, p: s - 2 * s,
        lambda s, p: s * p,
        lambda s, p: p * s / p,
        lambda s, p: s + jnp.zeros_like(p),
        lambda s, p: s + p * jnp.zeros_like(p) - jnp.zeros((6, 6)) @ p + jnp.zeros(6) / p,
        lambda s, p: s.astype(jnp.bfloat16),
        lambda s, p: jnp.where(p > 0, s, 0),
        lambda s, p: lax.complex(s, -s).real,
        lambda s, p: s**1,
        lambda s, p: lax.reduce_precision(s, 8, 7),
    ],
)
def test_linear(rows: Any, fun: Any):
    assert rows.results(fun, (SUM, (6,)), (FREE, (6,))) == [SUM]


@pytest.mark.parametrize(
    "fun",
    [
        lambda s, p: s + p,
        lambda s, p: s + 1.0,
        lambda s, p: s + jnp.cos(jnp.zeros(6)),
        lambda s, p: s + p / jnp.zeros(6),
        lambda s, p: s + (p * jnp.zeros(6)).astype(jnp.int32),
        lambda s, p: p - s,
        lambda s, p: s * s,
        lambda s, p: s**2,
        lambda s, p: jnp.square(s),
        lambda s, p: jnp.exp(s),
        lambda s, p: jnp.abs(s),
        lambda s, p: jnp.maximum(s, 0),
        lambda s, p: p / s,
        lambda s, p: s / s,
        lambda s, p: s.astype(jnp.int32),
        lambda s, p: s > 0,
        lambda s, p: jnp.where(p > 0, s, 1),
        lambda s, p: jnp.where(p > 0, s, p),
        lambda s, p: lax.bitcast_convert_type(s, jnp.int32),
    ],
)
def test_not_linear(rows: Any, fun: Any):
    with pytest.raises(RowError, match="sum over vertices enters"):
        rows.results(fun, (SUM, (6,)), (FREE, (6,)))


def test_sums_of_integers(rows: Any):
    for fun in (lambda s: s.astype(jnp.float32), lambda s: s.astype(jnp.int16), lambda s: s * 3):
        assert rows.results(fun, (SUM, (6,)), dtype=jnp.int32) == [SUM]
    # Division rounds each part; a wider type sees where the sum of parts had wrapped around.
    for fun in (lambda s: lax.div(s, jnp.int32(2)), lambda s: s >> 1, lambda s: s & 1):
        with pytest.raises(RowError):
            rows.results(fun, (SUM, (6,)), dtype=jnp.int32)
    with pytest.raises(RowError):
        rows.results(lambda s: s.astype(jnp.int32), (SUM, (6,)), dtype=jnp.int8)


def test_the_real_part_of_a_sum_is_the_sum_of_real_parts(rows: Any):
    def real_part(s: Any) -> Any:
        return lax.convert_element_type(s, jnp.float32)

    with pytest.warns(np.exceptions.ComplexWarning):
        assert rows.results(real_part, (SUM, (6,)), dtype=jnp.complex64) == [SUM]


def test_sums_do_not_meet_rows(rows: Any):
    for fun in (lambda s, x: s * x, lambda s, x: x + s, lambda s, x: jnp.where(x > 0, x, s)):
        with pytest.raises(RowError):
            rows.results(fun, (SUM, (6,)), (V, ("n", 6)))


def test_axes_of_size_one(rows: Any):
    found = rows.results(lambda x, y, p: (x - y) * p, (V, ("n", 6)), (V, ("n", 1)), (FREE, (1, 6)))
    assert found == [V]


def test_rows_of_different_spaces_do_not_meet(rows: Any):
    with pytest.raises(RowError, match="vertices and edges meet"):
        rows.results(lambda x, a: x[:, None] + a[None, :], (V, ("n",)), (E, ("e",)))
    with pytest.raises(RowError, match="two axes of rows"):
        rows.results(lambda x: x[:, None] + x[None, :], (V, ("n",)))


def test_bits(rows: Any):
    assert rows.results(lambda x: lax.bitcast_convert_type(x, jnp.uint8), (V, ("n", 6))) == [V]
    assert rows.results(lambda x: lax.bitcast_convert_type(x, jnp.uint32), (V, ("n", 6))) == [V]
    assert rows.results(lambda x: lax.bitcast_convert_type(x, jnp.uint32), (V, ("n", 4)), dtype=jnp.uint8) == [V]


X = (V, ("n", 6))


def test_keys_of_rows(rows: Any):
    def fun(ids: Any) -> Any:
        keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(0), ids)
        keys = jax.random.wrap_key_data(jax.random.key_data(keys))
        halves = jax.vmap(jax.random.split)(keys)
        return jax.vmap(lambda k: jax.random.uniform(k, (3,)))(halves[:, 0])

    assert rows.results(fun, (V, ("n",)), dtype=jnp.int32) == [V]
    assert rows.results(
        lambda ids: jax.vmap(jax.random.bits)(jax.vmap(jax.random.key)(ids)), (V, ("n",)), dtype=jnp.int32
    ) == [V]


@pytest.mark.parametrize(
    "draw",
    [
        lambda key, x: jax.random.uniform(key, x.shape),
        lambda key, x: jax.random.split(key, x.shape[0]),
        jax.random.gamma,
        lambda key, x: lax.rng_bit_generator(jnp.zeros(4, jnp.uint32), x.shape)[1],
        lambda key, x: lax.rng_uniform(0.0, 1.0, (3,)),
        lambda key, x: jax.random.wrap_key_data(x.reshape(-1)[: x.shape[0] * 2].reshape(2, -1).T.astype(jnp.uint32)),
    ],
)
def test_drawn_by_place(rows: Any, draw: Any):
    with pytest.raises(RowError):
        rows.results(lambda x: draw(jax.random.key(0), x), X)


def test_keys_that_are_sums(rows: Any):
    with pytest.raises(RowError):
        rows.results(lambda s: jax.random.bits(jax.random.key(s)), (SUM, ()), dtype=jnp.int32)
