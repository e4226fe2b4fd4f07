"""Flags of training mode, and the random streams of an epoch."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dorylax.program.model.base import epoch_rng, training_flags


@pytest.mark.parametrize(
    ("name", "training"), [("train", True), ("training", True), ("is_training", True), ("deterministic", False)]
)
def test_flags_say_whether_the_model_trains(name: str, training: bool) -> None:
    assert training_flags(["graph", "x", name], training=True) == {name: training}
    assert training_flags(["graph", "x", name], training=False) == {name: not training}


def words(key: jax.Array) -> list[int]:
    return np.asarray(jax.random.key_data(key)).reshape(-1).tolist()


def test_keys_fold_seed_then_epoch_and_counters_are_zero():
    streams = {"drop": {"key": jax.random.key(7), "count": jnp.uint32(5)}}
    renewed = epoch_rng(streams, 3, np.uint32(11))
    expected = jax.random.fold_in(jax.random.fold_in(jax.random.key(7), 3), 11)
    assert words(renewed["drop"]["key"]) == words(expected)
    assert int(renewed["drop"]["count"]) == 0
    assert renewed["drop"]["count"].dtype == jnp.uint32


def test_seed_epoch_and_stream_all_matter():
    keys = [epoch_rng(jax.random.key(s), seed, epoch) for s in (0, 1) for seed in (0, 1) for epoch in (0, 1)]
    assert len({tuple(words(key)) for key in keys}) == 8


def test_batches_of_keys():
    batch = jax.random.split(jax.random.key(0), (2, 3))
    renewed = epoch_rng(batch, 1, 2)
    assert renewed.shape == (2, 3)
    assert words(renewed[1, 2]) == words(epoch_rng(batch[1, 2], 1, 2))
