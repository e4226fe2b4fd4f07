"""The general message-passing layer of Gilmer et al., with edge features, and its model for vertices."""

from __future__ import annotations

from typing import final

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.layers.base import Conv, check_choice, follow_input, module, value_of
from dorylax.layers.model import Model
from dorylax.layers.recipes import published
from dorylax.layers.sage import Aggregation
from dorylax.ops import gather_edges, scatter_dst, scatter_src
from dorylax.ops.shapes import check_rows


@final
@module
class MPNNConv(Conv):
    r"""Message passing: Gilmer et al., "Neural message passing for quantum chemistry", ICML 2017.

    Paper: https://arxiv.org/abs/1704.01212, equations 1 and 2, with perceptrons of one hidden layer as message and
    update functions. In matrices, with S_src and S_dst `[E, V]` reading the rows at the ends of the edges, and rows
    e_uv of edge features in E,

        M = ReLU([S_dst X ‖ S_src X ‖ E] W_1 + b_1) W_2 + b_2
        X' = ReLU([X ‖ aggregate(M)] W_3 + b_3) W_4 + b_4

    and for one vertex, over its in-neighbors,

        x'_v = φ(x_v, aggregate({ψ(x_v, x_u, e_uv) : u ∈ N(v)})).

    The concatenations are never made: products with the blocks of W_1 and W_3 are added, and those of vertex rows are
    done once per vertex, before the edges read them. A vertex without in-neighbors aggregates to zero. An edge of v to
    itself counts as a neighbor; no loops are added.

    Args:
        in_features: F, width of the input rows.
        hidden_features: H, width inside both perceptrons, and of the messages (default: `out_features`).
        edge_features: D, width of the rows of edge features; 0: no edge features (default: 0).
        aggregation: "sum", as in the paper, "mean" or "max" (default: "sum").

    Other arguments are those of `Conv`.

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

    hidden_features: int | None = None
    edge_features: int = 0
    aggregation: Aggregation = "sum"

    def __post_init__(self, rngs: nnx.Rngs) -> None:
        check_choice("aggregation", self.aggregation, Aggregation)
        if self.edge_features < 0:
            raise ValueError(f"edge_features must be ≥ 0, got {self.edge_features}")
        width = self.out_features if self.hidden_features is None else self.hidden_features
        self.message = self.new_dense(rngs, 2 * self.in_features + self.edge_features, width)
        self.message_out = self.new_dense(rngs, width, width)
        self.update = self.new_dense(rngs, self.in_features + width, width)
        self.update_out = self.new_dense(rngs, width, self.out_features)

    def __call__(
        self, graph: CompressedGraph, x: Float[Array, "V F"], edges: Float[Array, "E D"] | None = None
    ) -> Float[Array, "V C"]:
        """Return `[V, out_features]` from the features of the vertices, and those of the edges `[E, D]` by edge id.

        Raises:
            ValueError: `x` is not `[V, in_features]`, or `edges` not `[E, edge_features]`.
        """
        self._check_edges(graph, edges)
        x, edges = self.cast(x, edges)
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
        _, kernel, offset = follow_input((x, dense.kernel[...], value_of(dense.bias)))
        return [*jnp.split(kernel, ends), jnp.zeros((), x.dtype) if offset is None else offset[None]]

    def _check_edges(self, graph: CompressedGraph, edges: jax.Array | None) -> None:
        width = self.edge_features
        if edges is None:
            if width:
                raise ValueError(
                    f"MPNNConv was made for {width} features per edge and got none: pass edges [E, {width}], or make it "
                    "with edge_features=0"
                )
            return
        if not width:
            raise ValueError(
                f"MPNNConv was made without edge features and got edges of shape {list(edges.shape)}: make it with "
                f"edge_features={edges.shape[-1]}"
            )
        if edges.ndim != 2 or edges.shape[1] != width:
            raise ValueError(
                f"MPNNConv expects edges of shape [E, {width}] (its edge_features), got {list(edges.shape)}"
            )
        check_rows("edges", edges, "edges", graph.num_edges)


@final
@module
class MPNN(Model):
    r"""Message-passing network: Gilmer et al., ICML 2017, https://arxiv.org/abs/1704.01212, without its readout.

    `num_layers` times `MPNNConv`, whose perceptrons are `hidden_features` wide inside, with separate parameters for each
    layer. Every layer reads the same edge features.

    Args:
        aggregation: "sum", "mean" or "max" (default: "sum").
        edge_features: D, width of the rows of edge features; 0: no edge features (default: 0).

    Other arguments are those of `Model`. It is called as `model(graph, x, edges [E, edge_features])`, by edge id.
    """

    conv = MPNNConv
    aggregation: Aggregation = "sum"
    edge_features: int = 0

    def __call__(
        self, graph: CompressedGraph, x: Float[Array, "V F"], edges: Float[Array, "E D"] | None = None
    ) -> Float[Array, "V C"]:
        """Return `[V, out_features]` from the features of the vertices, and those of the edges `[E, D]` by edge id."""
        return self.skeleton(self.convs, graph, x, edges)


SPEC = published(
    "mpnn",
    MPNN,
    "Gilmer et al., ICML 2017, the general form: one perceptron for messages, one for updates. The paper sums messages, "
    "in molecules; here they are averaged, with width 64 and the rest as in sage. No data set has edge features, so none "
    "are used.",
    model__hidden_features=64,
    model__aggregation="mean",
)
