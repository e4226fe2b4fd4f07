"""The graph isomorphism layer of Xu et al., and its model for vertices."""

from __future__ import annotations

from typing import Any, final

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.layers.base import Conv, module
from dorylax.layers.model import Model
from dorylax.layers.norm import apply_norm, make_norm
from dorylax.layers.recipes import published
from dorylax.ops import gather


@final
@module
class GINConv(Conv):
    r"""Graph isomorphism layer: Xu et al., "How powerful are graph neural networks?", ICLR 2019.

    Paper: https://arxiv.org/abs/1810.00826, equation 4.1, with a perceptron h of one hidden layer. In matrices,

        X' = h((A + (1 + ε) I) X),    h(Y) = ReLU(norm(Y W_1 + b_1)) W_2 + b_2.

    An edge of v to itself counts as a neighbor.

    Args:
        hidden_features: Width inside h (default: `out_features`).
        epsilon: The constant ε, or its initial value (default: 0).
        train_epsilon: Whether ε is a parameter (GIN-ε) or fixed (GIN-0, which the paper found to generalize slightly
            better) (default: False).
        norm: Normalization inside h (`layers.norm.make_norm`); the paper uses "batch" (default: "none").

    Other arguments are those of `Conv`.

    Attributes:
        hidden, out: `nnx.Linear`, W_1 and b_1, W_2 and b_2.
        norm: The normalization, or None.
        epsilon: ε, a scalar `nnx.Param` when trained, else a float.
    """

    hidden_features: int | None = None
    epsilon: Any = 0.0
    train_epsilon: bool = False
    norm: Any = "none"

    def __post_init__(self, rngs: nnx.Rngs) -> None:
        width = self.out_features if self.hidden_features is None else self.hidden_features
        self.hidden = self.new_dense(rngs, self.in_features, width)
        norm = make_norm(self.norm, width, dtype=self.dtype, param_dtype=self.param_dtype, rngs=rngs)
        self.norm = nnx.data(norm)
        self.out = self.new_dense(rngs, width, self.out_features)
        if self.train_epsilon:
            self.epsilon = nnx.data(nnx.Param(jnp.asarray(self.epsilon, self.param_dtype)))

    def __call__(self, graph: CompressedGraph, x: Float[Array, "V F"]) -> Float[Array, "V C"]:
        """See `Conv`."""
        epsilon = self.epsilon[...] if isinstance(self.epsilon, nnx.Param) else jnp.asarray(self.epsilon)
        x, epsilon = self.cast(x, epsilon)
        h = self.hidden((1 + epsilon) * x + gather(graph, x))
        return self.out(jax.nn.relu(h if self.norm is None else apply_norm(self.norm, h, graph)))


@final
@module
class GIN(Model):
    r"""Graph isomorphism network: Xu et al., ICLR 2019, https://arxiv.org/abs/1810.00826, without its readout.

    The perceptrons of its layers are `hidden_features` wide inside, where `norm` applies, too. Each ε starts from 0.
    """

    conv = GINConv
    train_epsilon: bool = False


SPEC = published(
    "gin",
    GIN,
    "Xu et al., ICLR 2019: ε = 0, two-layer perceptrons, Adam 0.01, dropout 0.5. The paper classifies graphs: width 64, "
    "layer (not batch) normalisation, two layers and the rest are as in gcn.",
    model__hidden_features=64,
    model__norm="layer",
)
