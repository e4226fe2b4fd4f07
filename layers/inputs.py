"""What every layer does first with its input: checks its width and settles the dtype of the computation.

The dtype policy is that of the library's users: features in one dtype give results in that dtype, whatever the
parameters are kept in. (Flax's own default promotes, so that bfloat16 features with float32 parameters turn into
float32.) `follow_input` has the signature that Flax's layers take as `promote_dtype`, so theirs follow it too.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike


def follow_input(values: Any, /, *, dtype: DTypeLike | None = None, inexact: bool = True) -> Any:
    """Casts a layer's arrays to the dtype it computes in.

    Args:
        values: arrays of any shapes, the layer's input first; None stays None.
        dtype: the dtype to compute in; None means that of `values[0]`.
        inexact: whether that dtype must be a floating-point one.

    Returns:
        The values in that dtype, as a tuple.

    Raises:
        TypeError: the dtype is not a floating-point one.
    """
    target = jnp.dtype(values[0].dtype if dtype is None else dtype)
    if inexact and not jnp.issubdtype(target, jnp.inexact):
        raise TypeError(f"features must be of a floating dtype, got {target}: cast them to float32")
    return tuple(None if value is None else jnp.asarray(value, target) for value in values)


def statistics_dtype(x: jax.Array) -> jnp.dtype[Any]:
    """The dtype of counts and their roots beside `x`: at least float32 (bfloat16 counts only up to 256)."""
    return jnp.promote_types(jnp.float32, x.dtype)


def check_width(layer: str, x: jax.Array, in_features: int) -> None:
    """Refuses features `x` that are not `[rows, in_features]`.

    Args:
        layer: the layer's name, for the message.
        x: what it was given.
        in_features: the width it was made for.

    Raises:
        ValueError: other rank or width.
    """
    if x.ndim != 2 or x.shape[1] != in_features:
        raise ValueError(f"{layer} expects features of shape [V, {in_features}] (its in_features), got {list(x.shape)}")
