"""The stability gate: intervals run ahead only while the step is short for the curvature of the loss.

A delay of one update lowers the largest stable curvature from 38 to 5 (in units of 1 / step size, with momentum 0.9), so
asynchrony must pause where full-batch training comes near that. The gate measures the curvature along the weights' own path.
With u the move before the last one, d the last move, H the Hessian and P the optimizer's preconditioner,

    q = step size · uᵀ H d / uᵀ P d

H d is the change of the gradient, and step size · P⁻¹ · (mean gradient) is the move itself, for Adam as for momentum. Hence
q = -u · (change of the gradient) / u · (mean gradient), which needs neither P nor the step size. Without momentum the mean
over about ten gradients stands for the gradient, so q is rough. The gradients in u are older than the two that
are compared, so their dropout noise cancels in the expectation. The quotient with d instead of u lacks that property: noise
alone gives it a value of 1 to 1.9.
"""

from __future__ import annotations

from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np

WINDOW = 5
"""Updates over which numerator and denominator of q are summed."""
OPEN_BELOW = 0.1
"""A closed gate opens when |q| falls below this value."""
CLOSE_ABOVE = 0.2
"""An open gate closes when |q| rises above this value."""
PATIENCE = 8
"""Successive updates with |q| below `OPEN_BELOW` that a gate needs to open, doubled each time that it has closed.

An early opening does harm even if it lasts for an epoch: where the curvature is high, training then takes another path.
"""
DECAY = 0.9
"""Decay of the mean gradient per update: the momentum of Adam's and SGD's usual settings."""


class Stability(NamedTuple):
    """Measurements of the curvature up to a version. Part of a server's state, and of checkpoints.

    Attributes:
        moves: float32 `[2, P]`, the last two changes of the P parameters, newest first; zeros before there were any.
        mean: float32 `[P]`, exponential mean of the gradients from zero, uncorrected.
        slope: float64, the product of the older move and the last gradient.
        scale: float64, minus the product of the older move and the mean gradient, corrected for its start from zero.
        terms: float64 `[WINDOW, 2]`, numerators and denominators of q, newest first; NaN before there were any.
        seen: int64, number of gradients.
        calm: int64, number of the last updates in succession with |q| below `OPEN_BELOW`.
        needed: int64, the value of `calm` at which the gate opens.
        open: bool, whether intervals may run ahead.
    """

    moves: np.ndarray
    mean: np.ndarray
    slope: np.float64
    scale: np.float64
    terms: np.ndarray
    seen: np.int64
    calm: np.int64
    needed: np.int64
    open: np.bool_

    @property
    def quotient(self) -> float:
        """The value of q over the window; NaN if it is unknown.

        Steps that swing back and forth make the denominator negative. Both signs are turned then, so that the terms of a
        window do not cancel.
        """
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            rises, scales = self.terms.T
            return float(np.sum(rises * np.sign(scales)) / np.sum(np.abs(scales)))


@final
class StabilityGate:
    """Follows gradients and weights from version to version. Pure."""

    def start(self, params: Any) -> Stability:
        """The state before training: closed, without measurements."""
        size = sum(leaf.size for leaf in _floating(params))
        return Stability(
            np.zeros((2, size), np.float32),
            np.zeros(size, np.float32),
            np.float64(0),
            np.float64(0),
            np.full((WINDOW, 2), np.nan),
            np.int64(0),
            np.int64(0),
            np.int64(PATIENCE),
            np.bool_(False),
        )

    def after(self, last: Stability, before: Any, gradients: Any, params: Any) -> Stability:
        """The state after an update.

        Args:
            last: the state before it.
            before: the parameters before the update.
            gradients: the update's gradients, shaped as the parameters.
            params: the parameters after the update.
        """
        gradient = _flat(gradients)
        with np.errstate(over="ignore", invalid="ignore"):
            term: tuple[float, float] = (_product(last.moves[1], gradient) - last.slope, last.scale)
            if last.seen < 2:  # the older move did not exist yet
                term = (np.nan, np.nan)
            terms = np.concatenate([np.array([term]), last.terms[:-1]])
            seen = last.seen + 1
            mean = DECAY * last.mean + (1 - DECAY) * gradient
            newest = last.moves[0]
            new = Stability(
                np.stack([(_flat(params) - _flat(before)).astype(np.float32), newest]),
                mean.astype(np.float32),
                np.float64(_product(newest, gradient)),
                np.float64(-_product(newest, mean) / (1 - DECAY**seen)),
                terms,
                seen,
                last.calm,
                last.needed,
                last.open,
            )
        # Comparisons with NaN are false: an unknown curvature is never low, and closes the gate.
        curvature = abs(new.quotient)
        calm = last.calm + 1 if curvature < OPEN_BELOW else np.int64(0)
        if not last.open:
            return new._replace(calm=calm, open=np.bool_(calm >= last.needed))
        if curvature <= CLOSE_ABOVE:
            return new._replace(calm=calm)
        return new._replace(calm=calm, needed=2 * last.needed, open=np.bool_(False))


def _product(a: np.ndarray, b: np.ndarray) -> np.float64:
    """The scalar product by NumPy's sum instead of BLAS, which gives the same bits on any number of threads."""
    product: np.float64 = np.sum(a * b)
    return product


def _flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(np.asarray(leaf, np.float64)) for leaf in _floating(tree)] or [np.zeros(0)])


def _floating(tree: Any) -> list[jax.Array]:
    return [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.floating)]
