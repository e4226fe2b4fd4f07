"""Input checks of every layer: the width of the features, and the dtype of the computation.

The dtype policy: features in one dtype give results in that dtype, regardless of the parameters' dtype. (Flax's default
promotes, so that bfloat16 features with float32 parameters become float32.) `follow_input` has the signature of
`promote_dtype` in Flax's layers, so these follow the policy too.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike


def follow_input(values: Any, /, *, dtype: DTypeLike | None = None, inexact: bool = True) -> Any:
    """Cast a layer's arrays to the dtype of its computation.

    Args:
        values: Arrays of any shapes, the layer's input first; None stays None.
        dtype: Dtype of the computation; None: the dtype of `values[0]`.
        inexact: Whether that dtype must be floating-point.

    Returns:
        The values in that dtype, as a tuple.

    Raises:
        TypeError: The dtype is not floating-point.
    """
    target = jnp.dtype(values[0].dtype if dtype is None else dtype)
    if inexact and not jnp.issubdtype(target, jnp.inexact):
        raise TypeError(f"features must be of a floating dtype, got {target}: cast them to float32")
    return tuple(None if value is None else jnp.asarray(value, target) for value in values)


def statistics_dtype(x: jax.Array) -> jnp.dtype[Any]:
    """Return the dtype of counts and their roots for `x`: at least float32 (bfloat16 counts only up to 256)."""
    return jnp.promote_types(jnp.float32, x.dtype)


def check_width(layer: str, x: jax.Array, in_features: int) -> None:
    """Refuse features `x` that are not `[rows, in_features]`.

    Args:
        layer: Name of the layer, for the message.
        x: The given features.
        in_features: Width of the layer's input.

    Raises:
        ValueError: The rank or width is wrong.
    """
    if x.ndim != 2 or x.shape[1] != in_features:
        raise ValueError(f"{layer} expects features of shape [V, {in_features}] (its in_features), got {list(x.shape)}")
