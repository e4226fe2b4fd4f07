"""The general message-passing layer of Gilmer et al., with edge features. Its model is `dorylax.layers.models.mpnn`."""

from __future__ import annotations

import functools
from typing import final, get_args

import jax
import jax.numpy as jnp
from flax import nnx
from jax.nn.initializers import Initializer
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.layers.initializers import glorot_uniform, zeros
from dorylax.layers.inputs import check_width, follow_input
from dorylax.layers.linear import linear
from dorylax.layers.sage import Aggregation
from dorylax.ops import gather_edges, scatter_dst, scatter_src
from dorylax.ops.shapes import check_rows


@final
class MPNNConv(nnx.Module):
    r"""Message passing: Gilmer et al., "Neural message passing for quantum chemistry", ICML 2017.

    Paper: https://arxiv.org/abs/1704.01212, equations 1 and 2, with perceptrons of one hidden layer as message and
    update functions. In matrices, with S_src and S_dst `[E, V]` reading the rows at the ends of the edges, and rows
    e_uv of edge features in E,

        M = ReLU([S_dst X ‖ S_src X ‖ E] W_1 + b_1) W_2 + b_2
        X' = ReLU([X ‖ aggregate(M)] W_3 + b_3) W_4 + b_4

    and for one vertex, over its in-neighbours,

        x'_v = φ(x_v, aggregate({ψ(x_v, x_u, e_uv) : u ∈ N(v)})).

    The concatenations are never made: products with the blocks of W_1 and W_3 are added, and those of vertex rows are
    done once per vertex, before the edges read them. A vertex without in-neighbours aggregates to zero. An edge of v to
    itself counts as a neighbour; no loops are added.

    Args:
        in_features: F, width of the input rows.
        out_features: Width of the output rows.
        hidden_features: H, width inside both perceptrons, and of the messages (default: `out_features`).
        edge_features: D, width of the rows of edge features; 0: no edge features (default: 0).
        aggregation: "sum", as in the paper, "mean" or "max" (default: "sum").
        use_bias: Whether to add the biases (default: True).
        kernel_init: Initialiser of the kernels (default: Glorot uniform).
        bias_init: Initialiser of the biases (default: zeros).
        dtype: Dtype of the computation and the result (default: that of the input).
        param_dtype: Dtype of the parameters (default: float32).
        rngs: Stream `params` for the parameters.

    Attributes:
        message: `nnx.Linear`, W_1 `[2F + D, H]` (rows for the target, the source, the edge) and b_1.
        message_out: `nnx.Linear`, W_2 `[H, H]` and b_2.
        update: `nnx.Linear`, W_3 `[F + H, H]` (rows for the vertex, its message) and b_3.
        update_out: `nnx.Linear`, W_4 `[H, out_features]` and b_4.

    Raises:
        ValueError: Unknown aggregation, or `edge_features` < 0.

    Shapes:
        - input: graph with V vertices and E edges, features `[V, in_features]`, edge features `[E, edge_features]` by
          edge id (unless `edge_features` is 0)
        - output: `[V, out_features]`
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        hidden_features: int | None = None,
        edge_features: int = 0,
        aggregation: Aggregation = "sum",
        use_bias: bool = True,
        kernel_init: Initializer = glorot_uniform,
        bias_init: Initializer = zeros,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        if aggregation not in get_args(Aggregation):
            raise ValueError(f"aggregation must be one of {', '.join(get_args(Aggregation))}, got {aggregation!r}")
        if edge_features < 0:
            raise ValueError(f"edge_features must be ≥ 0, got {edge_features}")
        hidden_features = out_features if hidden_features is None else hidden_features
        self.in_features = in_features
        self.out_features = out_features
        self.edge_features = edge_features
        self.aggregation: Aggregation = aggregation
        self.dtype = dtype
        dense = functools.partial(
            linear,
            use_bias=use_bias,
            kernel_init=kernel_init,
            bias_init=bias_init,
            dtype=dtype,
            param_dtype=param_dtype,
            rngs=rngs,
        )
        self.message = dense(2 * in_features + edge_features, hidden_features)
        self.message_out = dense(hidden_features, hidden_features)
        self.update = dense(in_features + hidden_features, hidden_features)
        self.update_out = dense(hidden_features, out_features)

    def __call__(
        self, graph: CompressedGraph, x: Float[Array, "V F"], edges: Float[Array, "E D"] | None = None
    ) -> Float[Array, "V C"]:
        """Apply the layer.

        Args:
            graph: V vertices, E edges.
            x: Features `[V, in_features]`.
            edges: Features of the edges `[E, edge_features]`, by edge id; None if `edge_features` is 0.

        Returns:
            `[V, out_features]`, in `dtype` or else the dtype of `x`.

        Raises:
            ValueError: `x` is not `[V, in_features]`, or `edges` not `[E, edge_features]`.
        """
        check_width("MPNNConv", x, self.in_features)
        self._check_edges(graph, edges)
        x, edges = follow_input((x, edges), dtype=self.dtype)
        to_target, to_source, to_edge, message_bias = self._blocks(
            self.message, x, self.in_features, 2 * self.in_features
        )
        hidden = scatter_dst(graph, x @ to_target + message_bias) + scatter_src(graph, x @ to_source)
        if edges is not None:
            hidden = hidden + edges @ to_edge
        messages = self.message_out(jax.nn.relu(hidden))
        gathered = gather_edges(graph, messages, reduce=self.aggregation)
        to_self, to_gathered, update_bias = self._blocks(self.update, x, self.in_features)
        return self.update_out(jax.nn.relu(x @ to_self + gathered @ to_gathered + update_bias))

    @staticmethod
    def _blocks(dense: nnx.Linear, x: jax.Array, *ends: int) -> list[jax.Array]:
        """Return the kernel cut after the rows `ends`, and the bias `[1, H]` (or 0), in the dtype of `x`."""
        bias = None if dense.bias is None else dense.bias[...]
        _, kernel, offset = follow_input((x, dense.kernel[...], bias))
        return [*jnp.split(kernel, ends), jnp.zeros((), x.dtype) if offset is None else offset[None]]

    def _check_edges(self, graph: CompressedGraph, edges: jax.Array | None) -> None:
        if edges is None:
            if self.edge_features:
                raise ValueError(
                    f"MPNNConv was made for {self.edge_features} features per edge and got none: pass edges "
                    f"[E, {self.edge_features}], or make it with edge_features=0"
                )
            return
        if not self.edge_features:
            raise ValueError(
                f"MPNNConv was made without edge features and got edges of shape {list(edges.shape)}: make it with "
                f"edge_features={edges.shape[-1]}"
            )
        if edges.ndim != 2 or edges.shape[1] != self.edge_features:
            raise ValueError(
                f"MPNNConv expects edges of shape [E, {self.edge_features}] (its edge_features), got "
                f"{list(edges.shape)}"
            )
        check_rows("edges", edges, "edges", graph.num_edges)
