"""The simplified graph convolution of Wu et al., and its model."""

from __future__ import annotations

import dataclasses
from typing import final

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.layers.adjacency import normalised_adjacency
from dorylax.layers.base import Conv, check_counts, module
from dorylax.layers.recipes import published


@final
@module
class SGConv(Conv):
    r"""Simplified graph convolution: Wu et al., "Simplifying graph convolutional networks", ICML 2019.

    Paper: https://arxiv.org/abs/1902.07153, section 2.2, without its softmax. In matrices, with Ã that of `GCNConv`,

        X' = Ã^K X W + b.

    The propagation is without parameters, so its result is the same in all epochs. The call also takes edge weights, as in
    `GCNConv`.

    Args:
        num_propagations: K ≥ 1 (default: 2).

    Other arguments and all attributes are those of `Conv`.
    """

    num_propagations: int = 2

    def __post_init__(self, rngs: nnx.Rngs) -> None:
        check_counts(num_propagations=self.num_propagations)
        super().__post_init__(rngs)

    def __call__(
        self, graph: CompressedGraph, x: Float[Array, "V F"], edge_weight: Float[Array, " E"] | None = None
    ) -> Float[Array, "V C"]:
        """See `Conv`."""
        x, kernel, bias, weight = self.cast(x, self.kernel, self.bias, edge_weight)
        adjacency = normalised_adjacency(graph, x, weight)
        for _ in range(self.num_propagations):
            x = adjacency.times(x)
        y: jax.Array = x @ kernel
        return y if bias is None else y + bias[None]


@final
@module
class SGC(nnx.Module):
    r"""Simplified graph convolution: Wu et al., ICML 2019, https://arxiv.org/abs/1902.07153.

    One `SGConv`, whose arguments these are: a linear classifier of features that were propagated K times. There are no
    hidden rows, no activation and no dropout. `convs` holds the one layer.
    """

    in_features: int = dataclasses.field(kw_only=False)
    out_features: int = dataclasses.field(kw_only=False)
    num_propagations: int = 2
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32
    rngs: dataclasses.InitVar[nnx.Rngs]

    def __post_init__(self, rngs: nnx.Rngs) -> None:
        options = {name: getattr(self, name) for name in ("num_propagations", "dtype", "param_dtype")}
        self.convs = nnx.List([SGConv(self.in_features, self.out_features, **options, rngs=rngs)])

    def __call__(self, graph: CompressedGraph, x: Float[Array, "V F"]) -> Float[Array, "V C"]:
        """See `Model`."""
        y: Array = self.convs[0](graph, x)
        return y


SPEC = published(
    "sgc",
    SGC,
    "Wu et al., ICML 2019, section 5.1: K = 2, Adam 0.2, 100 epochs. The paper tunes weight decay for each data set; this "
    "is the default of the authors' code.",
    model__num_propagations=2,
    optimizer__learning_rate=0.2,
    optimizer__weight_decay=5e-6,
    optimizer__weight_decay_on="all",
    train__epochs=100,
)
