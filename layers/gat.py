"""The graph attention layer of Veličković et al., and its model; other attention layers share `attend` and `Attention`."""

from __future__ import annotations

from typing import Any, final

import jax
import jax.numpy as jnp
from flax import nnx
from jax.nn.initializers import Initializer
from jaxtyping import Array, Float

from dorylax import ops
from dorylax.graph.compressed import CompressedGraph
from dorylax.layers.base import Conv, captures, check_counts, glorot_uniform, module
from dorylax.layers.dropout import Dropout
from dorylax.layers.model import Activation, Model
from dorylax.layers.recipes import published


@module
class Attention(Conv):
    """Base class of attention layers, whose K heads are concatenated (width K·F) or averaged (width F).

    Args:
        out_features: F, width of one head's output.
        heads: K ≥ 1, number of heads (default: 8).
        concat: Whether to concatenate the heads; else they are averaged (default: True).
        negative_slope: Negative slope of the LeakyReLU (default: 0.2, as in the papers).
        attention_dropout: Probability of dropping a coefficient (default: 0).
        attention_init: Initialiser of the attention vectors, made as `[K, F]` (default: Glorot uniform).

    Other arguments are those of `Conv`.

    Attributes:
        dropout: The `Dropout` of the coefficients.
    """

    heads: int = 8
    concat: bool = True
    negative_slope: float = 0.2
    attention_dropout: float = 0.0
    attention_init: Initializer = glorot_uniform

    @property
    def total_features(self) -> int:
        """Width of the output rows."""
        return self.heads * self.out_features if self.concat else self.out_features

    def new_attention(self, rngs: nnx.Rngs) -> nnx.Param[jax.Array]:
        """Return a new attention vector for each head, `[K, F]`."""
        return nnx.Param(self.attention_init(rngs.params(), (self.heads, self.out_features), self.param_dtype))

    def joined(self, y: Float[Array, "V K F"], bias: Float[Array, " C"] | None) -> Float[Array, "V C"]:
        """Concatenate or average the heads, and add the bias."""
        y = y.reshape(y.shape[0], self.total_features) if self.concat else y.mean(axis=1)
        return y if bias is None else y + bias[None]


@final
@module
class GATConv(Attention):
    r"""Graph attention: Veličković et al., "Graph attention networks", ICLR 2018.

    Paper: https://arxiv.org/abs/1710.10903, equations 1 to 6. In matrices, with K heads and P_k the matrix of that
    head's attention coefficients (row v sums to 1 and is zero where Â = A + I is),

        X' = ‖_k P_k X W_k + b    (heads concatenated)    or    X' = 1/K Σ_k P_k X W_k + b    (heads averaged)

    and for one vertex, in head k, over its in-neighbors and itself,

        x'_v = Σ_{u ∈ N(v) ∪ {v}} α_uv W_k^T x_u,
        α_uv = softmax over u of LeakyReLU(s_k · W_k^T x_u + t_k · W_k^T x_v).

    The loop of a vertex without one is a term of the softmax and of the sum, never an edge. Dropout, when training,
    falls on α. All arguments are those of `Attention`.

    Attributes:
        kernel: W `[in_features, K·F]`, head k in columns k·F … (k+1)·F - 1.
        attention_source, attention_target: s and t `[K, F]`, applied to the neighbor u and to v itself.
        bias: b `[K·F]` or `[F]`, or None.
    """

    def __post_init__(self, rngs: nnx.Rngs) -> None:
        check_counts(heads=self.heads)
        self.kernel = self.new_kernel(rngs, self.in_features, self.heads * self.out_features)
        self.attention_source = self.new_attention(rngs)
        self.attention_target = self.new_attention(rngs)
        self.bias = nnx.data(self.new_bias(rngs, self.total_features))
        self.dropout = Dropout(self.attention_dropout, rngs=rngs)

    def __call__(self, graph: CompressedGraph, x: Float[Array, "V F"]) -> Float[Array, "V C"]:
        """See `Conv`."""
        x, kernel, source, target, bias = self.cast(
            x, self.kernel, self.attention_source, self.attention_target, self.bias
        )
        z = (x @ kernel).reshape(x.shape[0], self.heads, self.out_features)
        source, target = (z * source[None]).sum(-1), (z * target[None]).sum(-1)
        slope = self.negative_slope
        if not self.dropout.active and not captures(self):
            loops = ops.missing_self_loops(graph, z.dtype)
            y = ops.additive_attention(graph, z, source, target, negative_slope=slope, loops=loops)
            return self.joined(y, bias)
        # Dropout keys coefficients by their edges' ids, so separate coefficients are needed; also for sowing them.
        scores = jax.nn.leaky_relu(ops.scatter_src(graph, source) + ops.scatter_dst(graph, target), slope)
        y = attend(graph, z, scores, jax.nn.leaky_relu(source + target, slope), self.dropout, layer=self)
        return self.joined(y, bias)


def attend(
    graph: CompressedGraph,
    z: Float[Array, "V H F"],
    scores: Float[Array, "E H"],
    loop_scores: Float[Array, "V H"],
    dropout: Dropout,
    *,
    layer: nnx.Module,
) -> Float[Array, "V H F"]:
    r"""`y_v = Σ_{u ∈ N(v) ∪ {v}} dropout(α_uv) z_u`, with α the softmax of the scores over u, head by head.

    Scores are by edge id; those of implicit loops are ignored for a vertex with an explicit loop. The dropout of the
    coefficients is keyed by the ids of edges and loops. If sown values are kept, the layer sows α: `attention` `[E, H]` by
    edge id, and `loop_attention` `[V, H]` of the implicit loops, 0 for vertices without one.
    """
    implicit = ops.missing_self_loops(graph, z.dtype)[:, None] > 0
    alpha, loop_alpha = ops.edge_softmax(graph, scores, jnp.where(implicit, loop_scores, -jnp.inf))
    if captures(layer):
        layer.sow(nnx.Intermediate, "attention", alpha)
        layer.sow(nnx.Intermediate, "loop_attention", loop_alpha)
    alpha, loop_alpha = dropout.together((alpha, ops.edge_ids(graph)), (loop_alpha, ops.loop_ids(graph)))
    y: jax.Array = ops.gather(graph, z, alpha) + loop_alpha[:, :, None] * z
    return y


@module
class AttentionModel(Model):
    """Base class of attention networks: hidden layers concatenate their heads, the last layer averages its heads.

    Hidden rows are `heads · hidden_features` wide. With jumping knowledge, which adds an output layer, all layers are
    hidden layers.

    Args:
        hidden_features: Width of one head's hidden rows.
        heads: Heads of each hidden layer, concatenated (default: 8).
        output_heads: Heads of the last layer, averaged; with `jk` there is no such layer (default: 1).
        attention_dropout: Probability of dropping an attention coefficient (default: 0.6).

    Other arguments are those of `Model`, with ELU as activation and dropout 0.6.
    """

    heads: int = 8
    output_heads: int = 1
    attention_dropout: float = 0.6
    dropout: float = 0.6
    activation: Activation = jax.nn.elu

    def widths(self, heads: int = 1) -> list[tuple[int, int]]:
        """See `Model.widths`."""
        check_counts(heads=self.heads)
        return super().widths(heads * self.heads)

    def new_conv(self, depth: int, in_features: int, out_features: int, **options: Any) -> Any:
        """Return a new attention layer, which concatenates its heads unless it is the output layer."""
        hidden = depth < self.num_layers - 1 or self.jk != "none"
        heads, width = (self.heads, self.hidden_features) if hidden else (self.output_heads, out_features)
        return super().new_conv(depth, in_features, width, heads=heads, concat=hidden, **options)


@final
@module
class GAT(AttentionModel):
    r"""Graph attention network: Veličković et al., ICLR 2018, https://arxiv.org/abs/1710.10903, section 3.3.

    The published model for cora is 8 heads of 8 features and one output head; for pubmed it has 8 output heads.
    """

    conv = GATConv


RECIPE = {
    "model__hidden_features": 8,
    "model__heads": 8,
    "model__output_heads": 1,
    "model__dropout": 0.6,
    "model__attention_dropout": 0.6,
    "optimizer__learning_rate": 0.005,
    "optimizer__weight_decay_on": "all",
    "train__epochs": 1000,
}
SPEC = published(
    "gat",
    GAT,
    "Veličković et al., ICLR 2018, section 3.3 (transductive, cora). The paper trains until neither validation loss nor "
    "accuracy has improved for 100 epochs; here, 1000 epochs and the best by accuracy.",
    **RECIPE,
)
