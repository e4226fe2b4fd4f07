"""PairNorm: centres rows, and scales them so that the mean square distance of all pairs is preserved."""

from __future__ import annotations

from typing import final

import jax
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.layers.graph_norm import graph_means
from dorylax.layers.inputs import follow_input, statistics_dtype


@final
class PairNorm(nnx.Module):
    r"""Zhao & Akoglu, "PairNorm", ICLR 2020, https://arxiv.org/abs/1909.12223, equations 10 and 11; without parameters.

    With means over all vertices of a row's graph:

        c_v = x_v - mean(x)
        y_v = s · c_v / sqrt(mean(|c|²) + ε)

    Args:
        scale: s (default: 1).
        epsilon: Ε (default: 1e-5).
        dtype: Dtype of the result (default: that of the input). Means are taken in float32 at least.

    Shapes:
        - input: `[V, F]`
        - output: `[V, F]`
    """

    def __init__(self, *, scale: float = 1.0, epsilon: float = 1e-5, dtype: DTypeLike | None = None) -> None:
        self.scale, self.epsilon, self.dtype = scale, epsilon, dtype

    def __call__(self, x: Float[Array, "V F"], graph: CompressedGraph | None = None) -> Float[Array, "V F"]:
        """Normalise `[V, F]`; `graph` separates the graphs of a `GraphPrediction`, otherwise all vertices are one graph."""
        (x,) = follow_input((x,), dtype=self.dtype)
        wide = x.astype(statistics_dtype(x))
        centred = wide - graph_means(wide, graph)
        squares = graph_means((centred**2).sum(axis=1)[:, None], graph)
        scale = self.scale * jax.lax.rsqrt(squares + self.epsilon)
        return (centred * scale).astype(x.dtype)
