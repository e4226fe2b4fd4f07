"""The GraphSAGE layer of Hamilton et al. Its model is `dorylax.layers.models.sage`."""

from __future__ import annotations

from typing import Literal, final, get_args

import jax
import jax.numpy as jnp
from flax import nnx
from jax.nn.initializers import Initializer
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.layers.initializers import glorot_uniform, zeros
from dorylax.layers.inputs import check_width, follow_input
from dorylax.ops import gather

Aggregation = Literal["mean", "sum", "max"]


@final
class SAGEConv(nnx.Module):
    r"""GraphSAGE: Hamilton et al., "Inductive representation learning on large graphs", NeurIPS 2017.

    Paper: https://arxiv.org/abs/1706.02216, algorithm 1, on all neighbours (no sampling) and without line 7's division
    by the norm. The paper's product with a concatenation is the sum of two products. In matrices, for the mean,

        X' = X W_self + D^(-1) A X W_neighbours + b

    and for one vertex, over its in-neighbours,

        x'_v = W_self^T x_v + W_neighbours^T · aggregate({x_u : u ∈ N(v)}) + b.

    A vertex without in-neighbours aggregates to zero. No loops are added: W_self is the vertex's own term.
    "max" is the elementwise maximum of the raw rows (the paper's pooling applies a dense layer first; add one for that).

    Args:
        in_features: Width of the input rows.
        out_features: Width of the output rows.
        aggregation: "mean", "sum" or "max" (default: "mean").
        use_bias: Whether to add b (default: True).
        kernel_init: Initialiser of both kernels (default: Glorot uniform).
        bias_init: Initialiser of b (default: zeros).
        dtype: Dtype of the computation and the result (default: that of the input).
        param_dtype: Dtype of the parameters (default: float32).
        rngs: Stream `params` for the parameters.

    Attributes:
        kernel_self: W_self `[in_features, out_features]`.
        kernel_neighbours: W_neighbours `[in_features, out_features]`.
        bias: b `[out_features]`, or None.

    Raises:
        ValueError: Unknown aggregation.

    Shapes:
        - input: graph with V vertices, features `[V, in_features]`
        - output: `[V, out_features]`
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        aggregation: Aggregation = "mean",
        use_bias: bool = True,
        kernel_init: Initializer = glorot_uniform,
        bias_init: Initializer = zeros,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        if aggregation not in get_args(Aggregation):
            raise ValueError(f"aggregation must be one of {', '.join(get_args(Aggregation))}, got {aggregation!r}")
        self.in_features = in_features
        self.out_features = out_features
        self.aggregation: Aggregation = aggregation
        self.dtype = dtype
        self.kernel_self = nnx.Param(kernel_init(rngs.params(), (in_features, out_features), param_dtype))
        self.kernel_neighbours = nnx.Param(kernel_init(rngs.params(), (in_features, out_features), param_dtype))
        self.bias = nnx.data(nnx.Param(bias_init(rngs.params(), (out_features,), param_dtype)) if use_bias else None)

    def __call__(self, graph: CompressedGraph, x: Float[Array, "V F"]) -> Float[Array, "V C"]:
        """Apply the layer.

        Args:
            graph: V vertices.
            x: Features `[V, in_features]`.

        Returns:
            `[V, out_features]`, in `dtype` or else the dtype of `x`.

        Raises:
            ValueError: `x` is not `[V, in_features]`.
        """
        check_width("SAGEConv", x, self.in_features)
        bias = None if self.bias is None else self.bias[...]
        x, kernel_self, kernel_neighbours, bias = follow_input(
            (x, self.kernel_self[...], self.kernel_neighbours[...], bias), dtype=self.dtype
        )
        y: jax.Array = x @ kernel_self + gather(graph, x, reduce=self.aggregation) @ kernel_neighbours
        return y if bias is None else y + bias[None]
