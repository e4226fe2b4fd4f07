"""Shape checks and row-wise scaling that the operators share."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

AnyArray = Array | np.ndarray
"""What operators take: JAX arrays, traced or not, and NumPy's."""


def check_rows(name: str, array: Any, kind: str, expected: Any) -> None:
    """Raises ValueError unless the array has one row for each of the graph's vertices or edges."""
    if array.ndim < 1 or array.shape[0] != expected:
        raise ValueError(f"{name} must have one row for each of the graph's {expected} {kind}, got shape {array.shape}")


def divide_rows(y: Float[Array, "V *rest"], count: Float[Array, " V"]) -> Float[Array, "V *rest"]:
    """Divides each row by its count; rows of count 0 are left."""
    per_row = jnp.maximum(count, 1).reshape(-1, *(1,) * (y.ndim - 1))
    return (y / per_row).astype(y.dtype)
