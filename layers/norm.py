"""Normalizations between layers and their names: of each row, or by statistics of all vertices.

The statistics are sums over all vertices, at which the intervals of a pipeline meet.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, final

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.layers.base import check_choice, check_width, follow_input, module, statistics_dtype
from dorylax.ops import readout

NormKind = Literal["none", "layer", "rms", "batch", "graph", "pair"]


@final
@module
class GraphNorm(nnx.Module):
    r"""Normalization by the spread over all vertices, after a learned share of the mean: Cai et al., ICML 2021.

    "GraphNorm", https://arxiv.org/abs/2009.03294, equation 6. With means over all vertices of a row's graph, feature by
    feature, for rows `[V, F]`:

        c_v = x_v - α ⊙ mean(x)
        y_v = γ ⊙ c_v / sqrt(mean(c²) + ε) + β

    Args:
        num_features: F, the width of the rows.
        epsilon: The constant ε (default: 1e-5).
        dtype: Dtype of the result (default: that of the input). Means are taken in float32 at least.
        param_dtype: Dtype of α, β and γ (default: float32).
        rngs: Unused, since all parameters start as constants; present in every layer.

    Attributes:
        mean_scale, scale, bias: α, γ (ones at first) and β (zeros at first), each `[F]`.
    """

    num_features: int = dataclasses.field(kw_only=False)
    epsilon: float = 1e-5
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32
    rngs: dataclasses.InitVar[nnx.Rngs]

    def __post_init__(self, rngs: nnx.Rngs) -> None:
        del rngs
        self.mean_scale = nnx.Param(jnp.ones((self.num_features,), self.param_dtype))
        self.scale = nnx.Param(jnp.ones((self.num_features,), self.param_dtype))
        self.bias = nnx.Param(jnp.zeros((self.num_features,), self.param_dtype))

    def __call__(self, x: Float[Array, "V F"], graph: CompressedGraph | None = None) -> Float[Array, "V F"]:
        """Normalize `[V, F]`; `graph` separates the graphs of a `GraphPrediction`, otherwise all vertices are one graph."""
        check_width("GraphNorm", x, self.num_features)
        (x,) = follow_input((x,), dtype=self.dtype)
        wide = x.astype(statistics_dtype(x))
        centred = wide - self.mean_scale[...][None] * graph_means(wide, graph)
        scale = jax.lax.rsqrt(graph_means(centred**2, graph) + self.epsilon)
        return (self.scale[...][None] * centred * scale + self.bias[...][None]).astype(x.dtype)


@final
@module
class PairNorm(nnx.Module):
    r"""Normalization that preserves the mean square distance of all pairs: Zhao & Akoglu, ICLR 2020.

    "PairNorm", https://arxiv.org/abs/1909.12223, equations 10 and 11; without parameters. With means over all vertices
    of a row's graph, for rows `[V, F]`:

        c_v = x_v - mean(x)
        y_v = s · c_v / sqrt(mean(|c|²) + ε)

    Args:
        scale: The factor s (default: 1).
        epsilon: As for `GraphNorm`.
        dtype: As for `GraphNorm`.
    """

    scale: float = 1.0
    epsilon: float = 1e-5
    dtype: DTypeLike | None = None

    def __call__(self, x: Float[Array, "V F"], graph: CompressedGraph | None = None) -> Float[Array, "V F"]:
        """Normalize `[V, F]`; `graph` as for `GraphNorm`."""
        (x,) = follow_input((x,), dtype=self.dtype)
        wide = x.astype(statistics_dtype(x))
        centred = wide - graph_means(wide, graph)
        squares = graph_means((centred**2).sum(axis=1)[:, None], graph)
        scale = self.scale * jax.lax.rsqrt(squares + self.epsilon)
        return (centred * scale).astype(x.dtype)


Norm = nnx.LayerNorm | nnx.RMSNorm | nnx.BatchNorm | GraphNorm | PairNorm


def make_norm(kind: NormKind, num_features: int, **options: Any) -> Norm | None:
    """Return a new normalization of the kind `kind`.

    Args:
        kind: Of each row: "layer" (Ba et al., arXiv:1607.06450), "rms" (Zhang & Sennrich, arXiv:1910.07467). By statistics
            of all vertices: "batch" (Ioffe & Szegedy, arXiv:1502.03167, with running averages of momentum 0.9), "graph"
            (`GraphNorm`), "pair" (`PairNorm`). Or "none".
        num_features: F, the width of the rows.
        **options: `dtype`, `param_dtype` and `rngs`, as for Flax's layers.

    Returns:
        A layer `[R, F]` → `[R, F]`, or None for "none".

    Raises:
        ValueError: Unknown kind.
    """
    check_choice("norm", kind, NormKind)
    if kind == "none":
        return None
    if kind == "pair":
        return PairNorm(dtype=options.get("dtype"))
    if kind == "graph":
        return GraphNorm(num_features, **options)
    if kind == "batch":
        return nnx.BatchNorm(num_features, momentum=0.9, promote_dtype=follow_input, **options)
    of_rows = nnx.LayerNorm if kind == "layer" else nnx.RMSNorm
    return of_rows(num_features, promote_dtype=follow_input, **options)


def apply_norm(norm: Norm, x: Float[Array, "V F"], graph: CompressedGraph) -> Float[Array, "V F"]:
    """Normalize the rows of a graph's vertices, separately for each of many joined graphs (`GraphPrediction`).

    Only "batch" takes its statistics over all graphs, which in training are the training graphs.
    """
    return norm(x, graph) if isinstance(norm, GraphNorm | PairNorm) else norm(x)


def graph_means(x: Float[Array, "V F"], graph: CompressedGraph | None) -> Float[Array, "#V F"]:
    """Return each vertex's mean over its graph, or one row `[1, F]` if all vertices are one graph."""
    if graph is None or graph.graph_of is None or graph.num_graphs is None:
        return x.mean(axis=0)[None]
    return readout(x, graph.graph_of, graph.num_graphs, "mean")[graph.graph_of]
