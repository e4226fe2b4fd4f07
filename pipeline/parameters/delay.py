"""Smaller steps for older gradients, at first: rescheduling of learning rates (PipeMare, MLSys '21, section 3.1)."""

from __future__ import annotations

from typing import NamedTuple


class DelayScaling(NamedTuple):
    """Divides the step of epoch e by `(1 + d) ** p`, with `p = max(0, 1 - e / epochs)`.

    d is by how many updates the weights have moved on since those that the gradient is of, on average over its intervals.
    Without asynchrony the paper's delay is 1, ours 0: hence the 1.

    Attributes:
        epochs: after how many the steps are what they are without; ≥ 1.
    """

    epochs: int

    def __call__(self, epoch: int, delay: float) -> float:
        """What the step is multiplied with, above 0 and at most 1."""
        return float((1 + max(0.0, delay)) ** -max(0.0, 1 - epoch / self.epochs))
