"""The simplified graph convolution of Wu et al. as a model."""

from __future__ import annotations

from typing import final

import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.layers.sgc import SGConv


@final
class SGC(nnx.Module):
    r"""Simplified graph convolution: Wu et al., ICML 2019, https://arxiv.org/abs/1902.07153.

    One `SGConv`: a linear classifier of features that were propagated K times, Z = Ã^K X W + b. There are no hidden
    rows, no activation and no dropout.

    Args:
        in_features: Width of the input rows.
        out_features: Width of the output rows: the number of classes.
        num_propagations: K (default: 2).
        dtype: Dtype of the computation and the result (default: that of the input).
        param_dtype: Dtype of the parameters (default: float32).
        rngs: Stream `params`.

    Attributes:
        convs: The one layer.

    Raises:
        ValueError: `num_propagations` < 1.

    Shapes:
        - input: graph with V vertices, features `[V, in_features]`
        - output: `[V, out_features]`
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        num_propagations: int = 2,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        self.convs = nnx.List(
            [
                SGConv(
                    in_features,
                    out_features,
                    num_propagations=num_propagations,
                    dtype=dtype,
                    param_dtype=param_dtype,
                    rngs=rngs,
                )
            ]
        )

    def __call__(self, graph: CompressedGraph, x: Float[Array, "V F"]) -> Float[Array, "V C"]:
        """Return `[V, out_features]`, a row for each vertex of `graph`, from features `x [V, in_features]`."""
        y: Array = self.convs[0](graph, x)
        return y
