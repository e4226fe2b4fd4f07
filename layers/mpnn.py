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

    Paper: https://arxiv.org/abs/1704.01212, equations 1 and 2, with perceptrons of one hidden layer as message function ψ
    and update function φ. For one vertex, over its in-neighbors, with edge features e_uv,

        x'_v = φ(x_v, aggregate({ψ(x_v, x_u, e_uv) : u ∈ N(v)})),
        ψ = ReLU([x_v ‖ x_u ‖ e_uv] W_1 + b_1) W_2 + b_2,    φ = ReLU([x_v ‖ m_v] W_3 + b_3) W_4 + b_4.

    The concatenations are never made: products with the blocks of W_1 and W_3 are added, and those of vertex rows are
    done once per vertex, before the edges read them. A vertex without in-neighbors aggregates to zero. An edge of v to
    itself counts as a neighbor; no loops are added.

    Args:
        hidden_features: H, width inside both perceptrons, and of the messages (default: `out_features`).
        edge_features: D ≥ 0, width of the rows of edge features; 0: no edge features (default: 0).
        aggregation: "sum", as in the paper, "mean" or "max" (default: "sum").

    Other arguments are those of `Conv`. Unless D is 0, the call takes edge features `[E, D]` by edge id, too.

    Attributes:
        message, message_out: `nnx.Linear`, W_1 `[2F + D, H]` (rows for the target, the source, the edge) and W_2 `[H, H]`.
        update, update_out: `nnx.Linear`, W_3 `[F + H, H]` (rows for the vertex, its message) and W_4 `[H, out_features]`.
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
        """See `Conv`; raises a ValueError unless `edges` is `[E, edge_features]`."""
        self._check_edges(graph, edges)
        x, edges = self.cast(x, edges)
        F = self.in_features
        to_target, to_source, to_edge, message_bias = self._blocks(self.message, x, F, 2 * F)
        hidden = scatter_dst(graph, x @ to_target + message_bias) + scatter_src(graph, x @ to_source)
        if edges is not None:
            hidden = hidden + edges @ to_edge
        messages = self.message_out(jax.nn.relu(hidden))
        gathered = gather_edges(graph, messages, reduce=self.aggregation)
        to_self, to_gathered, update_bias = self._blocks(self.update, x, F)
        return self.update_out(jax.nn.relu(x @ to_self + gathered @ to_gathered + update_bias))

    @staticmethod
    def _blocks(dense: nnx.Linear, x: jax.Array, *ends: int) -> list[jax.Array]:
        """Return the kernel cut after the rows `ends`, and the bias `[1, H]` (or 0), in the dtype of `x`."""
        _, kernel, offset = follow_input((x, dense.kernel[...], value_of(dense.bias)))
        return [*jnp.split(kernel, ends), jnp.zeros((), x.dtype) if offset is None else offset[None]]

    def _check_edges(self, graph: CompressedGraph, edges: jax.Array | None) -> None:
        shape = None if edges is None else list(edges.shape)
        if (0 if edges is None else edges.shape[-1]) != self.edge_features or (edges is not None and edges.ndim != 2):
            raise ValueError(
                f"MPNNConv was made for {self.edge_features} features per edge, [E, {self.edge_features}], and got {shape}: "
                "pass such edges (None for 0 features), or make it with another edge_features"
            )
        if edges is not None:
            check_rows("edges", edges, "edges", graph.num_edges)


@final
@module
class MPNN(Model):
    r"""Message-passing network: Gilmer et al., ICML 2017, https://arxiv.org/abs/1704.01212, without its readout.

    The perceptrons of its layers are `hidden_features` wide inside. Every layer reads the same edge features.

    The call is `model(graph, x, edges [E, edge_features])`, by edge id.
    """

    conv = MPNNConv
    aggregation: Aggregation = "sum"
    edge_features: int = 0

    def __call__(
        self, graph: CompressedGraph, x: Float[Array, "V F"], edges: Float[Array, "E D"] | None = None
    ) -> Float[Array, "V C"]:
        """See `Model`."""
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
