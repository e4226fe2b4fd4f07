"""Random numbers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from dorylax.program.rows.errors import RowError
from dorylax.program.rows.types import Free, Rows, Summed

V, E, SUM, FREE = Rows("vertex", 0), Rows("edge", 0), Summed(), Free()

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
