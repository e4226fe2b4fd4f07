"""The optimizer's own next steps, should the gradient stay what it was: its moments count, its new state is thrown away."""

from __future__ import annotations

from typing import final

import numpy as np

from dorylax.pipeline.parameters.messages import ServerState, Tree, Update
from dorylax.pipeline.parameters.update import OptimizerStep


@final
class Repeated:
    """See `Prediction`. Costs a copy of the gradient.

    Args:
        step: of the optimizer.
    """

    def __init__(self, step: OptimizerStep) -> None:
        self._step = step

    def remembered(self, last: ServerState, update: Update) -> Tree:  # noqa: ARG002
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
