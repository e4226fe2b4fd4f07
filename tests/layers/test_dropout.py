from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from flax.errors import TraceContextError

from dorylax.layers import Dropout


def drop_once(x: Any, ids: Any, rate: float = 0.4) -> np.ndarray:
    """The first draw of a fresh layer, always with the same key."""
    return np.asarray(Dropout(rate, rngs=nnx.Rngs(0))(jnp.asarray(x), jnp.asarray(ids)))


def test_a_row_depends_on_its_id_alone() -> None:
    x = np.random.default_rng(0).normal(size=(50, 7)).astype(np.float32)
    full = drop_once(x, np.arange(50))
    rows = np.array([41, 3, 3, 0, 49])
    np.testing.assert_array_equal(drop_once(x[rows], rows), full[rows])


def test_blocks_dropped_together_are_one_draw() -> None:
    x = np.ones((30, 4), np.float32)
    a, b = Dropout(0.4, rngs=nnx.Rngs(0)).together(
        (jnp.asarray(x[:20]), jnp.arange(20)), (jnp.asarray(x[20:]), jnp.arange(20, 30, dtype=jnp.uint32))
    )
    np.testing.assert_array_equal(np.concatenate([a, b]), drop_once(x, np.arange(30)))


def test_rate_and_scale() -> None:
    y = drop_once(np.full((400, 100), 3.0, np.float32), np.arange(400), rate=0.25)
    assert set(np.unique(y)) == {0.0, 4.0}
    assert abs((y == 0).mean() - 0.25) < 0.01  # 4.6 standard deviations of 40,000 draws


def test_elements_of_a_row_differ_and_rows_differ() -> None:
    y = drop_once(np.ones((64, 64), np.float32), np.arange(64), rate=0.5)
    assert len(np.unique(y, axis=0)) == 64
    assert len(np.unique(y, axis=1).T) == 64


@pytest.mark.parametrize("shape", [(6,), (6, 3), (6, 3, 2)])
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_shape_and_dtype_are_kept(shape: tuple[int, ...], dtype: Any) -> None:
    y = Dropout(0.5, rngs=nnx.Rngs(0))(jnp.ones(shape, dtype), jnp.arange(6))
    assert y.shape == shape
    assert y.dtype == dtype


def test_nothing_and_everything() -> None:
    x, ids = jnp.ones((3, 2)), jnp.arange(3)
    np.testing.assert_array_equal(Dropout(0.0, rngs=nnx.Rngs(0))(x, ids), x)
    everything = Dropout(1.0, rngs=nnx.Rngs(0))
    np.testing.assert_array_equal(everything(x, ids), 0)
    np.testing.assert_array_equal(jax.grad(lambda x: everything(x, ids).sum())(x), 0)


def test_eval_keeps_the_rows_and_draws_nothing() -> None:
    drop = Dropout(0.5, rngs=nnx.Rngs(0))
    drop.eval()
    x = jnp.ones((3, 2))
    np.testing.assert_array_equal(drop(x, jnp.arange(3)), x)
    assert drop.rngs.count[...] == 0
    drop.train()
    assert np.any(drop(x, jnp.arange(3)) == 0)
    assert drop.rngs.count[...] == 1


def test_rng_state_is_kept_as_flax_keeps_it() -> None:
    ours, theirs = (make(0.5, rngs=nnx.Rngs(params=0, dropout=1)) for make in (Dropout, nnx.Dropout))
    state, expected = (dict(nnx.to_flat_state(nnx.state(layer, nnx.RngState))) for layer in (ours, theirs))
    assert {path: type(v) for path, v in state.items()} == {path: type(v) for path, v in expected.items()}
    path = ("rngs", "key")
    np.testing.assert_array_equal(jax.random.key_data(state[path][...]), jax.random.key_data(expected[path][...]))


def test_keys_are_drawn_as_flax_draws_them() -> None:
    """Though not by Flax's own call, which is slow in deep models."""
    stream = nnx.Rngs(dropout=1)["dropout"].fork()
    layer = Dropout(0.5, rngs=nnx.Rngs(dropout=1))
    for _ in range(3):
        key = stream()
        np.testing.assert_array_equal(jax.random.key_data(layer._draw()), jax.random.key_data(key))
    assert layer.rngs.count[...] == 3


def test_drawing_in_a_transformation_that_would_lose_the_count_is_refused() -> None:
    drop = Dropout(0.5, rngs=nnx.Rngs(0))
    with pytest.raises(TraceContextError, match="trace level"):
        jax.jit(lambda x: drop(x, jnp.arange(3)))(jnp.ones((3, 2)))


def test_default_stream_serves_where_there_is_none_for_dropout() -> None:
    assert Dropout(0.5, rngs=nnx.Rngs(0)).rngs.key[...].shape == ()


@pytest.mark.parametrize("rate", [-0.1, 1.5, float("nan")])
def test_rate_out_of_range_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match=f"dropout must be between 0 and 1, got {rate}"):
        Dropout(rate, rngs=nnx.Rngs(0))
