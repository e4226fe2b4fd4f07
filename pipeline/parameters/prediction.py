"""Predicted weights, for intervals that run ahead of the newest version."""

from __future__ import annotations

from typing import Any, Protocol, final, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from dorylax.pipeline.parameters.records import ServerState, Step, Tree
from dorylax.pipeline.parameters.update import OptimizerStep


@runtime_checkable
class Prediction(Protocol):
    """Predicts the weights some updates ahead. Pure."""

    def remembered(self, last: ServerState, update: Step) -> Tree:
        """Return the part of an update that predictions from the next version need.

        Args:
            last: The version before the update.
            update: The update.

        Returns:
            A pytree of arrays, or None.
        """
        ...

    def like(self, params: Tree) -> Tree:
        """Return a pytree with the structure of `remembered`, to restore saved leaves into."""
        ...

    def predict(self, newest: ServerState, ahead: int) -> Tree:
        """Predict the parameters of a later version.

        Args:
            newest: A version whose `remembered` is not None.
            ahead: The number of updates to predict, ≥ 1.
        """
        ...


@final
class Linear:
    """Predicts `w + n (w - w_before)`, as XPipe and SpecTrain do for pipelines.

    Keeps a second copy of the parameters. Integers stay as they are.
    """

    def remembered(self, last: ServerState, update: Step) -> Tree:  # noqa: ARG002
        """Return the parameters before the update."""
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


@final
class Repeated:
    """Repeats the optimizer's step with the last gradient, and drops the new state. Keeps a copy of the gradient.

    Args:
        step: The optimizer.
    """

    def __init__(self, step: OptimizerStep) -> None:
        self._step = step

    def remembered(self, last: ServerState, update: Step) -> Tree:  # noqa: ARG002
        """Return the gradient and its loss."""
        return {"gradients": update.gradients, "loss": np.float64(update.loss)}

    def like(self, params: Tree) -> Tree:
        """See `Prediction`."""
        return {"gradients": params, "loss": np.float64(0)}

    def predict(self, newest: ServerState, ahead: int) -> Tree:
        """See `Prediction`."""
        params, opt_state = newest.params, newest.opt_state
        for _ in range(ahead):
            params, opt_state = self._step.step(params, opt_state, **newest.remembered)
        return params


def choose(name: str, step: OptimizerStep) -> Prediction | None:
    """Return the prediction with this name; None for "none".

    Args:
        name: A value of the setting `pipeline.predict_weights`.
        step: The optimizer.

    Raises:
        ValueError: The name is unknown.
    """
    match name:
        case "none":
            return None
        case "linear":
            return Linear()
        case "optimizer":
            return Repeated(step)
        case _:
            raise ValueError(f"predict_weights must be 'none', 'linear' or 'optimizer', got {name!r}")
