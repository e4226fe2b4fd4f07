"""Whether gradients oscillate: then nobody runs ahead of the newest weights, until they have settled.

A gradient that is one update old makes training unstable at curvatures that an immediate one bears well (see
`docs/pipeline.md`, `predict_weights`). On the way there gradients turn round: for a quadratic with momentum 0.9 and weights
predicted by the optimizer, each points against the third before it. That shows long before the loss does, whatever the
optimizer. Dropout's noise does not look like it: it makes gradients less alike, not opposite.
"""

from __future__ import annotations

from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np

LAGS = 3
"""Up to how many updates apart two gradients are compared: half a period at the limit of stability of a delay of one."""
WINDOW = 4
"""Over how many updates the cosines are averaged."""
HOLD = 16
"""For how many updates nobody runs ahead, once gradients oscillate; each time twice as many as the last time."""


class Steadiness(NamedTuple):
    """What is known of the gradients up to a version. Part of a server's state, and of checkpoints.

    Attributes:
        last: float32 `[LAGS, P]`, the directions of the last gradients, newest first; P is the number of parameters.
        cosines: float64 `[WINDOW, LAGS]`, of the last gradients with each of those before them, newest first; NaN where
            there was none.
        seen: int64, how many gradients.
        until: int64, how many must have been seen before anybody may run ahead again.
        hold: int64, how many more that will be the next time.
    """

    last: np.ndarray
    cosines: np.ndarray
    seen: np.int64
    until: np.int64
    hold: np.int64

    @property
    def steady(self) -> bool:
        """Whether intervals may run ahead."""
        return bool(self.seen >= self.until)


@final
class OscillationWatch:
    """Follows gradients from version to version. Pure.

    Args:
        limit: up to which mean cosine, with the sign turned, gradients may point against those before them; below 1.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit

    def start(self, params: Any) -> Steadiness:
        """Nothing is known yet."""
        size = sum(leaf.size for leaf in _floating(params))
        # Not before each cosine is the mean of at least two: an optimizer's first steps are its wildest.
        return Steadiness(
            np.zeros((LAGS, size), np.float32),
            np.full((WINDOW, LAGS), np.nan),
            np.int64(0),
            np.int64(WINDOW + 1),
            np.int64(HOLD),
        )

    def after(self, last: Steadiness, gradients: Any) -> Steadiness:
        """What is known after an update with these gradients."""
        flat = np.concatenate(
            [np.ravel(np.asarray(leaf, np.float64)) for leaf in _floating(gradients)] or [np.zeros(0)]
        )
        with np.errstate(over="ignore", invalid="ignore"):  # gradients that are no numbers have no direction
            norm = np.sqrt(np.sum(flat * flat))  # NumPy's sum, not BLAS: the same bits on any number of threads
        direction = flat / norm if 0 < norm < np.inf else np.zeros_like(flat)
        known = np.arange(LAGS) < last.seen
        found = np.where(known, np.sum(last.last * direction, axis=1), np.nan)
        cosines = np.concatenate([found[None], last.cosines[:-1]])
        seen, until, hold = last.seen + 1, last.until, last.hold
        if seen >= until and self._oscillates(cosines):
            until, hold = seen + hold, 2 * hold
        directions = np.concatenate([direction[None].astype(np.float32), last.last[:-1]])
        return Steadiness(directions, cosines, seen, until, hold)

    def _oscillates(self, cosines: np.ndarray) -> bool:
        return bool(np.nanmean(cosines, axis=0).min() < -self._limit)


def _floating(tree: Any) -> list[jax.Array]:
    return [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.floating)]
