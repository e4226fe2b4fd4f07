"""GraphNorm: each feature scaled by its spread over all vertices, after a learnt share of its mean is subtracted."""

from __future__ import annotations

from typing import final

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.layers.inputs import check_width, follow_input, statistics_dtype
from dorylax.ops import readout


@final
class GraphNorm(nnx.Module):
    r"""Cai et al., "GraphNorm", ICML 2021, https://arxiv.org/abs/2009.03294, equation 6.

    With means over all vertices of a row's graph, feature by feature:

        c_v = x_v - α ⊙ mean(x)
        y_v = γ ⊙ c_v / sqrt(mean(c²) + ε) + β

    Args:
        num_features: F, the width of the rows.
        epsilon: Ε (default: 1e-5).
        dtype: Dtype of the result (default: that of the input). Means are taken in float32 at least.
        param_dtype: Dtype of α, β and γ (default: float32).
        rngs: Unused, since all parameters start as constants; present in every layer.

    Attributes:
        mean_scale: Α `[F]`, ones at first.
        scale: Γ `[F]`, ones at first.
        bias: Β `[F]`, zeros at first.

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

    def __call__(self, x: Float[Array, "V F"], graph: CompressedGraph | None = None) -> Float[Array, "V F"]:
        """Normalise `[V, F]`; `graph` separates the graphs of a `GraphPrediction`, otherwise all vertices are one graph."""
        check_width("GraphNorm", x, self.num_features)
        (x,) = follow_input((x,), dtype=self.dtype)
        wide = x.astype(statistics_dtype(x))
        centred = wide - self.mean_scale[...][None] * graph_means(wide, graph)
        scale = jax.lax.rsqrt(graph_means(centred**2, graph) + self.epsilon)
        return (self.scale[...][None] * centred * scale + self.bias[...][None]).astype(x.dtype)


def graph_means(x: Float[Array, "V F"], graph: CompressedGraph | None) -> Float[Array, "#V F"]:
    """Return each vertex's mean over its graph, or one row `[1, F]` if all vertices are one graph."""
    if graph is None or graph.graph_of is None or graph.num_graphs is None:
        return x.mean(axis=0)[None]
    return readout(x, graph.graph_of, graph.num_graphs, "mean")[graph.graph_of]
