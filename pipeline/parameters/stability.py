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

The moves hardly point along directions of high curvature while training is stable, so q over all parameters shows such a
direction only after asynchrony has made it grow. The quotients of single arrays show it earlier, above all those of
biases, which are small and curved. The gate therefore follows q and the largest quotient of a single array.
"""

from __future__ import annotations

from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np

WINDOW = 5
"""Updates over which numerator and denominator of q are summed."""
ARRAY_WINDOW = 10
"""The same for single arrays: small ones are noisy."""
OPEN_BELOW, ARRAY_OPEN_BELOW = 0.1, 1.0
"""A closed gate opens when |q| and the largest quotient of an array fall below these values."""
CLOSE_ABOVE, ARRAY_CLOSE_ABOVE = 0.2, 2.0
"""An open gate closes when |q| or the largest quotient of an array rises above these values."""
PATIENCE = 8
"""Successive calm updates that a gate needs to open, doubled each time that it has closed.

An early opening does harm even if it lasts for an epoch: where the curvature is high, training then takes another path.
"""
DECAY = 0.9
"""Decay of the mean gradient per update: the momentum of Adam's and SGD's usual settings."""


class Stability(NamedTuple):
    """Measurements of the curvature up to a version. Part of a server's state, and of checkpoints.

    Attributes:
        moves: float32 `[2, P]`, the last two changes of the P parameters, newest first; zeros before there were any.
        mean: float32 `[P]`, exponential mean of the gradients from zero, uncorrected.
        slopes: float64 `[A]`, products of the older move and the last gradient, one for each of the A arrays of parameters.
        scales: float64 `[A]`, minus the products of the older move and the mean gradient, corrected for its start from zero.
        terms: float64 `[ARRAY_WINDOW, 2, A]`, numerators and denominators of q, newest first; NaN before there were any.
        seen: int64, number of gradients.
        calm: int64, number of the last calm updates in succession.
        needed: int64, the value of `calm` at which the gate opens.
        open: bool, whether intervals may run ahead.
    """

    moves: np.ndarray
    mean: np.ndarray
    slopes: np.ndarray
    scales: np.ndarray
    terms: np.ndarray
    seen: np.int64
    calm: np.int64
    needed: np.int64
    open: np.bool_

    @property
    def quotient(self) -> float:
        """The value of q over the window; NaN if it is unknown."""
        return float(_quotients(np.sum(self.terms[:WINDOW], axis=2)))

    @property
    def largest(self) -> float:
        """The largest |q| of a single array of parameters; 0 if none is known. Arrays that do not move have none."""
        return float(np.nanmax(np.abs(_quotients(np.nan_to_num(self.terms))), initial=0))


def _quotients(terms: np.ndarray) -> np.ndarray:
    """Return q of terms `[W, 2, …]`.

    Steps that swing back and forth make the denominator negative. Both signs are turned then, so that the terms of a
    window do not cancel.
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        rises, scales = np.moveaxis(terms, 1, 0)
        quotients: np.ndarray = np.sum(rises * np.sign(scales), axis=0) / np.sum(np.abs(scales), axis=0)
        return quotients


@final
class StabilityGate:
    """Follows gradients and weights from version to version. Pure."""

    def start(self, params: Any) -> Stability:
        """The state before training: closed, without measurements."""
        sizes = [leaf.size for leaf in _floating(params)]
        return Stability(
            np.zeros((2, sum(sizes)), np.float32),
            np.zeros(sum(sizes), np.float32),
            np.zeros(len(sizes)),
            np.zeros(len(sizes)),
            np.full((ARRAY_WINDOW, 2, len(sizes)), np.nan),
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
        gradient, ends = _flat(gradients), np.cumsum([leaf.size for leaf in _floating(params)])[:-1]
        with np.errstate(over="ignore", invalid="ignore"):
            term = np.stack([_products(last.moves[1], gradient, ends) - last.slopes, last.scales])
            if last.seen < 2:  # the older move did not exist yet
                term = np.full_like(term, np.nan)
            seen = last.seen + 1
            mean = DECAY * last.mean + (1 - DECAY) * gradient
            newest = last.moves[0]
            new = Stability(
                np.stack([(_flat(params) - _flat(before)).astype(np.float32), newest]),
                mean.astype(np.float32),
                _products(newest, gradient, ends),
                -_products(newest, mean, ends) / (1 - DECAY**seen),
                np.concatenate([term[None], last.terms[:-1]]),
                seen,
                last.calm,
                last.needed,
                last.open,
            )
        # Comparisons with NaN are false: an unknown curvature is never low, and closes the gate.
        curvature, largest = abs(new.quotient), new.largest
        calm = last.calm + 1 if curvature < OPEN_BELOW and largest < ARRAY_OPEN_BELOW else np.int64(0)
        if not last.open:
            return new._replace(calm=calm, open=np.bool_(calm >= last.needed))
        if curvature <= CLOSE_ABOVE and largest <= ARRAY_CLOSE_ABOVE:
            return new._replace(calm=calm)
        return new._replace(calm=calm, needed=2 * last.needed, open=np.bool_(False))


def _products(a: np.ndarray, b: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The scalar product of each array, by NumPy's sum instead of BLAS: the same bits on any number of threads."""
    return np.array([np.sum(part) for part in np.split(a * b, ends)])


def _flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(np.asarray(leaf, np.float64)) for leaf in _floating(tree)] or [np.zeros(0)])


def _floating(tree: Any) -> list[jax.Array]:
    return [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.floating)]
