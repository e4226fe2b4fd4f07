"""GraphNorm: each feature scaled by its spread over all vertices, after a learnt share of its mean is subtracted."""

from __future__ import annotations

from typing import final

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from dorylax.layers.inputs import check_width, follow_input, statistics_dtype


@final
class GraphNorm(nnx.Module):
    r"""Cai et al., "GraphNorm", ICML 2021, https://arxiv.org/abs/2009.03294, equation 6.

    With means over all vertices of the graph, feature by feature:

        c_v = x_v - α ⊙ mean(x)
        y_v = γ ⊙ c_v / sqrt(mean(c²) + ε) + β

    Args:
        num_features: F, the width of the rows.
        epsilon: ε (default: 1e-5).
        dtype: dtype of the result (default: that of the input). Means are taken in float32 at least.
        param_dtype: dtype of α, β and γ (default: float32).
        rngs: unused, since all parameters begin as constants; every layer takes it.

    Attributes:
        mean_scale: α `[F]`, ones at first.
        scale: γ `[F]`, ones at first.
        bias: β `[F]`, zeros at first.

    Shapes:
        - input: `[V, F]`
        - output: `[V, F]`
    """

    def __init__(
        self,
        num_features: int,
        *,
        epsilon: float = 1e-5,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        del rngs
        self.num_features, self.epsilon, self.dtype = num_features, epsilon, dtype
        self.mean_scale = nnx.Param(jnp.ones((num_features,), param_dtype))
        self.scale = nnx.Param(jnp.ones((num_features,), param_dtype))
        self.bias = nnx.Param(jnp.zeros((num_features,), param_dtype))

    def __call__(self, x: Float[Array, "V F"]) -> Float[Array, "V F"]:
        """`[V, F]` → `[V, F]`."""
        check_width("GraphNorm", x, self.num_features)
        (x,) = follow_input((x,), dtype=self.dtype)
        wide = x.astype(statistics_dtype(x))
        centred = wide - self.mean_scale[...] * wide.mean(axis=0)
        scale = jax.lax.rsqrt((centred**2).mean(axis=0) + self.epsilon)
        return (self.scale[...] * centred * scale + self.bias[...]).astype(x.dtype)
