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
    """Says what the weights will be some updates from now. Pure."""

    def remembered(self, last: ServerState, update: Step) -> Tree:
        """What has to be known of an update to predict from the version that it leads to.

        Args:
            last: the version before the update.
            update: as it is applied.

        Returns:
            A pytree of arrays; None where nothing has to be.
        """
        ...

    def like(self, params: Tree) -> Tree:
        """A pytree of the structure that `remembered` gives, for what is restored."""
        ...

    def predict(self, newest: ServerState, ahead: int) -> Tree:
        """The parameters to be expected.

        Args:
            newest: a version whose `remembered` is not None.
            ahead: how many updates later, ≥ 1.
        """
        ...


@final
class Linear:
    """`w + n (w - w_before)`, as XPipe and SpecTrain predict the weights of pipelines.

    Costs a second copy of the parameters. Integers stay as they are.
    """

    def remembered(self, last: ServerState, update: Step) -> Tree:  # noqa: ARG002
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


@final
class Repeated:
    """The optimizer's own next steps with the last gradient; its new state is thrown away. Costs a copy of the gradient.

    Args:
        step: of the optimizer.
    """

    def __init__(self, step: OptimizerStep) -> None:
        self._step = step

    def remembered(self, last: ServerState, update: Step) -> Tree:  # noqa: ARG002
        """The gradient and its loss."""
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
    """The prediction of this name; None for "none".

    Args:
        name: a value of the setting `pipeline.predict_weights`.
        step: of the optimizer.

    Raises:
        ValueError: an unknown name.
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
