"""The graph convolution with initial residual and identity mapping of Chen et al., and its deep model."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, final

import jax
import jax.numpy as jnp
from flax import nnx
from jax.nn.initializers import Initializer
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.layers.adjacency import normalised_adjacency
from dorylax.layers.base import check_fraction, check_width, follow_input, glorot_uniform, linear, module, value_of
from dorylax.layers.dropout import Dropout
from dorylax.layers.model import Activation, check_sizes
from dorylax.layers.recipes import published
from dorylax.ops import vertex_ids


@final
@module
class GCN2Conv(nnx.Module):
    r"""Graph convolution for deep networks: Chen et al., "Simple and deep graph convolutional networks", ICML 2020.

    Paper: https://arxiv.org/abs/2007.02133, equation 5, without its activation. In matrices, with Ã that of `GCNConv`,
    X_0 the rows before the first such layer, and β = log(θ/l + 1) for layer l = 1, 2, …,

        X' = H ((1 - β) I + β W),    H = (1 - α) Ã X + α X_0

    or, with a separate matrix for α X_0 (the paper's GCNII*),

        X' = (1 - α) Ã X ((1 - β) I + β W) + α X_0 ((1 - β) I + β W_0).

    Args:
        features: Width of the input and output rows.
        alpha: α, the share of X_0, in 0 … 1 (default: 0.1).
        theta: θ > 0, the strength of the matrices (default: 0.5).
        layer: l ≥ 1, the place of the layer in its network (default: 1).
        share_weights: Whether W_0 is W (default: True).

    Other arguments are those of `Conv`. The call takes the rows `[V, features]`, the first rows X_0 `[V, features]`, and
    edge weights as in `GCNConv`.

    Attributes:
        kernel: W `[features, features]`.
        kernel_initial: W_0 `[features, features]`; None when shared.
        beta: β.
    """

    features: int = dataclasses.field(kw_only=False)
    alpha: float = 0.1
    theta: float = 0.5
    layer: int = 1
    share_weights: bool = True
    kernel_init: Initializer = glorot_uniform
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32
    rngs: dataclasses.InitVar[nnx.Rngs]

    def __post_init__(self, rngs: nnx.Rngs) -> None:
        check_fraction("alpha", self.alpha)
        if not self.theta > 0:
            raise ValueError(f"theta must be > 0, got {self.theta}")
        if self.layer < 1:
            raise ValueError(f"layer must be ≥ 1, the place of the layer in its network; got {self.layer}")
        self.beta = math.log(self.theta / self.layer + 1)
        self.kernel = self._new_kernel(rngs)
        self.kernel_initial = nnx.data(None if self.share_weights else self._new_kernel(rngs))

    def _new_kernel(self, rngs: nnx.Rngs) -> nnx.Param[jax.Array]:
        return nnx.Param(self.kernel_init(rngs.params(), (self.features, self.features), self.param_dtype))

    def __call__(
        self,
        graph: CompressedGraph,
        x: Float[Array, "V F"],
        initial: Float[Array, "V F"],
        edge_weight: Float[Array, " E"] | None = None,
    ) -> Float[Array, "V F"]:
        """Return `[V, features]`; raises a ValueError unless `x` and `initial` are `[V, features]`."""
        check_width("GCN2Conv", x, self.features)
        check_width("GCN2Conv", initial, self.features)
        x, initial, kernel, kernel_initial, weight = follow_input(
            (x, initial, self.kernel[...], value_of(self.kernel_initial), edge_weight), dtype=self.dtype
        )
        propagated = (1 - self.alpha) * normalised_adjacency(graph, x, weight).times(x)
        first = self.alpha * initial
        if kernel_initial is None:
            return (propagated + first) @ self._mapping(kernel)
        return propagated @ self._mapping(kernel) + first @ self._mapping(kernel_initial)

    def _mapping(self, kernel: Float[Array, "F F"]) -> Float[Array, "F F"]:
        """Return (1 - β) I + β W as one matrix.

        Adding (1 - β) H to β H W instead would chain the rows of all layers by elementwise operations, which XLA fuses and
        recomputes in every layer: time quadratic in the depth.
        """
        mapping: jax.Array = (1 - self.beta) * jnp.eye(self.features, dtype=kernel.dtype) + self.beta * kernel
        return mapping


@final
@module
class GCNII(nnx.Module):
    r"""GCNII: Chen et al., ICML 2020, https://arxiv.org/abs/2007.02133.

    A linear layer, `num_layers` times `GCN2Conv`, and a linear layer:

        x_0     = σ(dropout(x) W_in + b_in)
        x_{l+1} = σ(GCN2Conv_{l+1}(dropout(x_l), x_0))    for l = 0 … L - 1
        y       = dropout(x_L) W_out + b_out

    The paper goes up to 64 layers. Norms and shortcuts are not options, since the layers themselves allow the depth.

    Args:
        num_layers: L, number of `GCN2Conv` layers, without the two linear ones (default: 64).
        dropout: Probability of dropping an element of each layer's input (default: 0.6).

    Other arguments are those of `GCN2Conv` and `Model`; `share_weights=False` is the paper's GCNII*.

    Attributes:
        linear_in, linear_out: `nnx.Linear`, W_in and b_in, W_out and b_out.
        convs: The `GCN2Conv` layers, first to last.
        dropouts: One `Dropout` per layer, linear ones included.
    """

    in_features: int = dataclasses.field(kw_only=False)
    hidden_features: int = dataclasses.field(kw_only=False)
    out_features: int = dataclasses.field(kw_only=False)
    num_layers: int = 64
    dropout: float = 0.6
    alpha: float = 0.1
    theta: float = 0.5
    share_weights: bool = True
    activation: Activation = jax.nn.relu
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32
    rngs: dataclasses.InitVar[nnx.Rngs]

    def __post_init__(self, rngs: nnx.Rngs) -> None:
        check_sizes(self)
        shared: dict[str, Any] = {"dtype": self.dtype, "param_dtype": self.param_dtype, "rngs": rngs}
        own: dict[str, Any] = {"alpha": self.alpha, "theta": self.theta, "share_weights": self.share_weights}
        width, layers = self.hidden_features, range(1, self.num_layers + 1)
        self.linear_in = linear(self.in_features, width, **shared)
        self.convs = nnx.List([GCN2Conv(width, layer=layer, **own, **shared) for layer in layers])
        self.linear_out = linear(width, self.out_features, **shared)
        self.dropouts = nnx.List([Dropout(self.dropout, rngs=rngs) for _ in range(self.num_layers + 2)])

    def __call__(self, graph: CompressedGraph, x: Float[Array, "V F"]) -> Float[Array, "V C"]:
        """See `Model`."""
        check_width("GCNII", x, self.in_features)
        ids = vertex_ids(graph)
        first, *between, last = self.dropouts
        initial = x = self.activation(self.linear_in(first(x, ids)))
        for conv, drop in zip(self.convs, between, strict=True):
            x = self.activation(conv(graph, drop(x, ids), initial))
        return self.linear_out(last(x, ids))


SPEC = published(
    "gcnii",
    GCNII,
    "Chen et al., ICML 2020, section 5.1 (cora, 64 layers). The paper decays its convolutions by 0.01 and the linear "
    "layers by 0.0005; here 0.0005 for all. It stops after 100 epochs without a lower validation loss; here, 1500 epochs "
    "and the best by accuracy.",
    model__hidden_features=64,
    model__num_layers=64,
    model__dropout=0.6,
    model__alpha=0.1,
    model__theta=0.5,
    model__share_weights=True,
    optimizer__weight_decay_on="all",
    train__epochs=1500,
)
