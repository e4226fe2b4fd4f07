"""Checks of shapes and dtypes for all operators."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

AnyArray = Array | np.ndarray
"""Arrays that operators accept: of JAX, traced or not, or of NumPy."""


def check_rows(name: str, array: Any, kind: str, expected: Any) -> None:
    """Raise ValueError unless the array has one row for each of the graph's vertices or edges."""
    if array.ndim < 1 or array.shape[0] != expected:
        raise ValueError(f"{name} must have one row for each of the graph's {expected} {kind}, got shape {array.shape}")


def check_floating(name: str, array: Any) -> None:
    """Raise TypeError unless the array has a floating-point dtype."""
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise TypeError(f"{name} must be of a floating dtype, got {array.dtype}: cast it to float32")


def mean_dtypes(dtype: Any) -> tuple[Any, Any]:
    """Return the dtype in which a mean is computed, and the dtype of its result.

    Float32 holds sums that would overflow float16 (at 65,504), and quotients that integers would truncate.
    """
    if dtype == jnp.float16:
        return jnp.float32, dtype
    return (dtype, dtype) if jnp.issubdtype(dtype, jnp.inexact) else (jnp.float32, jnp.float32)
