"""Normalisation of each row's features: which there is, by name. The layers themselves are Flax's.

Batch normalisation is left out on purpose: it mixes the rows of different vertices, so that a model with it could not
be computed in intervals of vertices.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from dorylax.layers.inputs import follow_input

NormKind = Literal["none", "layer", "rms"]


def make_norm(
    kind: NormKind,
    num_features: int,
    *,
    dtype: DTypeLike | None = None,
    param_dtype: DTypeLike = jnp.float32,
    rngs: nnx.Rngs,
) -> nnx.LayerNorm | nnx.RMSNorm | None:
    """Makes the normalisation called `kind`.

    Args:
        kind: "layer" (Ba et al., arXiv:1607.06450), "rms" (Zhang & Sennrich, arXiv:1910.07467) or "none".
        num_features: F, the width of the rows.
        dtype: dtype of the result (default: that of the input).
        param_dtype: dtype of scale and bias (default: float32).
        rngs: as Flax's layers take it.

    Returns:
        A layer `[R, F]` → `[R, F]`, or None for "none".

    Raises:
        ValueError: no such kind.
    """
    check_norm(kind)
    options: dict[str, Any] = {"dtype": dtype, "param_dtype": param_dtype, "promote_dtype": follow_input, "rngs": rngs}
    match kind:
        case "none":
            return None
        case "layer":
            return nnx.LayerNorm(num_features, **options)
        case "rms":
            return nnx.RMSNorm(num_features, **options)


def check_norm(kind: str) -> None:
    """Refuses what is not a `NormKind`.

    Raises:
        ValueError: no such kind.
    """
    if kind not in get_args(NormKind):
        raise ValueError(f"norm must be one of {', '.join(get_args(NormKind))}, got {kind!r}")
