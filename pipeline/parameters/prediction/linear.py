"""Weights go on as they have gone last: `w + n (w - w_before)` (as XPipe and SpecTrain predict pipelines' weights)."""

from __future__ import annotations

from typing import Any, final

import jax
import jax.numpy as jnp

from dorylax.pipeline.parameters.messages import ServerState, Tree, Update


@final
class Linear:
    """See `Prediction`. Costs a second copy of the parameters; what is no floating-point number stays as it is."""

    def remembered(self, last: ServerState, update: Update) -> Tree:  # noqa: ARG002
        """The parameters before the update."""
        return last.params

    def like(self, params: Tree) -> Tree:
        """See `Prediction`."""
        return params

    def predict(self, newest: ServerState, ahead: int) -> Tree:
        """See `Prediction`."""
        return _extrapolated(newest.params, newest.remembered, ahead)


@jax.jit
def _extrapolated(params: Tree, before: Tree, ahead: Any) -> Tree:
    def leaf(now: Any, then: Any) -> Any:
        if not jnp.issubdtype(now.dtype, jnp.floating):
            return now
        return now + ahead.astype(now.dtype) * (now - then)

    ahead = jnp.asarray(ahead)
    return jax.tree.map(leaf, params, before)
