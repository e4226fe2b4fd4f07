"""The optimizer's step, for one machine and for parameter servers. Functions may be traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from dorylax.program.model.base import Tree


def step(
    optimizer: optax.GradientTransformationExtraArgs,
    params: Tree,
    opt_state: Tree,
    gradients: Tree,
    loss: Any,
    *,
    value_fn: Callable[..., Any],
    factor: int = 1,
) -> tuple[Tree, Tree]:
    """Return the parameters and the optimizer's state after a step, in their old types.

    With a factor K the step is that of `chain(scale(K), optimizer, scale(1/K))`, with the state of `optimizer` itself.

    Args:
        optimizer: The optimizer.
        params: The parameters.
        opt_state: State of the optimizer.
        gradients: Gradients of the loss.
        loss: The loss, for optimizers that read it (line searches, reduce_on_plateau).
        value_fn: Returns the loss at other parameters, or raises if the caller cannot evaluate it.
        factor: K ≥ 1.
    """
    if factor != 1:
        gradients, loss = _scaled(gradients, float(factor)), loss * factor
    updates, new_opt_state = optimizer.update(
        gradients, opt_state, params, value=loss, grad=gradients, value_fn=value_fn
    )
    if factor != 1:
        updates = _scaled(updates, 1 / factor)
    new: tuple[Tree, Tree] = like((optax.apply_updates(params, updates), new_opt_state), (params, opt_state))
    return new


def fresh(tree: Tree) -> Tree:
    """Copy arrays without weak types, so that outputs share no buffer with inputs, and later steps have the same types."""
    return jax.tree.map(lambda leaf: jnp.array(leaf, dtype=jnp.asarray(leaf).dtype, copy=True), tree)


def like(tree: Tree, template: Tree) -> Tree:
    """Convert arrays to the dtypes of a template, without weak types, so that one executable serves every step."""
    return jax.tree.map(lambda leaf, old: jnp.asarray(leaf, dtype=old.dtype), tree, template)


def _scaled(tree: Tree, factor: float) -> Tree:
    return jax.tree.map(lambda leaf: factor * leaf, tree)
