"""Dropout keyed by row id, so that a row's mask depends neither on its position in memory nor on other rows.

`flax.nnx.Dropout` draws one mask for the whole array: reordering the vertices, or computing only some rows, changes the
dropped elements. Here row i's mask is a function of only the step's key and the row's id. The id is the user's vertex id,
the edge id, or 2³¹ + v for the implicit self-loop of v (`dorylax.ops.row_random`). RNG state has the form of Flax's
Dropout (a forked `RngStream`: one `RngKey`, one `RngCount`), so that a trainer may set `nnx.RngState`.
"""

from __future__ import annotations

import math
from typing import final

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Integer

from dorylax.layers.base import check_fraction
from dorylax.ops.row_random import bernoulli_rows

# An array of rows, `[R, …]`, and the id of each, `[R]`.
Block = tuple[Float[Array, "..."], Integer[Array, "_"]]


@final
class Dropout(nnx.Module):
    """Zeroes elements with probability `rate` and scales the others by 1 / (1 - rate).

    Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting", JMLR 2014. `model.train()`
    and `model.eval()` switch it on and off (attribute `deterministic`, False at first, as in Flax).

    Args:
        rate: The probability of dropping an element, in 0 … 1.
        rngs: Source of the key: its `dropout` stream is forked, or else its default one.
    """

    def __init__(self, rate: float, *, rngs: nnx.Rngs) -> None:
        check_fraction("dropout", rate)
        self.rate = rate
        self.deterministic = False
        self.rngs = rngs["dropout"].fork()

    @property
    def active(self) -> bool:
        """Whether a call may change its input."""
        return not self.deterministic and self.rate > 0

    def __call__(self, x: Float[Array, "R *rest"], ids: Integer[Array, " R"]) -> Float[Array, "R *rest"]:
        """Drop elements of `x [R, …]`, of any floating dtype, whose row k has id `ids[k]`; every call draws again."""
        (dropped,) = self.together((x, ids))
        return dropped

    def together(self, *blocks: Block) -> tuple[Array, ...]:
        """Drop elements of several arrays with a single draw, as if they were one array; ids distinguish rows.

        Args:
            *blocks: Pairs of rows `[R, …]` and ids `[R]`; the rows of all blocks have the same shape.
        """
        if not self.active:
            return tuple(x for x, _ in blocks)
        if self.rate == 1:  # 1 / (1 - rate) would make the gradient NaN
            return tuple(jnp.zeros_like(x) for x, _ in blocks)
        key = self._draw()
        return tuple(_drop(key, self.rate, x, ids) for x, ids in blocks)

    def _draw(self) -> Array:
        """Return the stream's next key, as `self.rngs()` does.

        Flax assigns the counter by index, for which it reads a traced value's sharding. That raises an error whose text JAX
        composes from all equations traced so far, which is quadratic in the depth of the model.
        """
        stream = self.rngs
        key = jax.random.fold_in(stream.key[...], stream.count[...])
        stream.count.set_value(stream.count[...] + 1)
        return key


def _drop(key: Array, rate: float, x: Float[Array, "R *rest"], ids: Integer[Array, " R"]) -> Float[Array, "R *rest"]:
    keep = bernoulli_rows(key, 1 - rate, ids, math.prod(x.shape[1:])).reshape(x.shape)
    return jax.lax.select(keep, x / (1 - rate), jnp.zeros_like(x))
