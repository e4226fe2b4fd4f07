"""Randomness of an epoch: a pure function of (model's streams, seed, epoch), never carried from epoch to epoch.

Flax keeps a key and a counter per random stream and counts every draw. With carried counters, draws would differ after a
restart or in another order of intervals. Instead, each epoch starts with new streams: counter 0, key folded with seed and
epoch. Rows fold their ids later (`dorylax.ops.row_random`).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def epoch_rng(streams: Any, seed: Any, epoch: Any) -> Any:
    """Return the random streams of one epoch.

    Args:
        streams: Pytree of the model's `nnx.RngState` values: typed keys (of any shape) and integer counters.
        seed: Integer in 0 … 2³²-1, or a uint32 scalar array.
        epoch: Integer in 0 … 2³²-1, or a uint32 scalar array.

    Returns:
        A tree of the same structure: each key is `fold_in(fold_in(key, seed), epoch)`, each counter 0.
    """

    def renew(leaf: Any) -> Any:
        if not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jnp.zeros_like(leaf)
        folded = jax.vmap(lambda key: jax.random.fold_in(jax.random.fold_in(key, seed), epoch))(leaf.reshape(-1))
        return folded.reshape(leaf.shape)

    return jax.tree.map(renew, streams)
