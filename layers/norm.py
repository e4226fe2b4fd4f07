"""Normalisations between layers and their names: of each row, or by statistics of all vertices.

The statistics are sums over all vertices, at which the intervals of a pipeline meet.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.layers.graph_norm import GraphNorm
from dorylax.layers.inputs import follow_input
from dorylax.layers.pair_norm import PairNorm

NormKind = Literal["none", "layer", "rms", "batch", "graph", "pair"]
Norm = nnx.LayerNorm | nnx.RMSNorm | nnx.BatchNorm | GraphNorm | PairNorm


def make_norm(
    kind: NormKind,
    num_features: int,
    *,
    dtype: DTypeLike | None = None,
    param_dtype: DTypeLike = jnp.float32,
    rngs: nnx.Rngs,
) -> Norm | None:
    """Make the normalisation called `kind`.

    Args:
        kind: Of each row: "layer" (Ba et al., arXiv:1607.06450), "rms" (Zhang & Sennrich, arXiv:1910.07467). By statistics
            of all vertices: "batch" (Ioffe & Szegedy, arXiv:1502.03167, with running averages of momentum 0.9), "graph"
            (`GraphNorm`), "pair" (`PairNorm`). Or "none".
        num_features: F, the width of the rows.
        dtype: Dtype of the result (default: that of the input).
        param_dtype: Dtype of scale and bias (default: float32).
        rngs: Streams, as for Flax's layers.

    Returns:
        A layer `[R, F]` → `[R, F]`, or None for "none".

    Raises:
        ValueError: Unknown kind.
    """
    check_norm(kind)
    options: dict[str, Any] = {"dtype": dtype, "param_dtype": param_dtype, "promote_dtype": follow_input, "rngs": rngs}
    match kind:
        case "none":
            return None
        case "layer":
            return nnx.LayerNorm(num_features, **options)
        case "rms":
            return nnx.RMSNorm(num_features, **options)
        case "batch":
            return nnx.BatchNorm(num_features, momentum=0.9, **options)
        case "graph":
            return GraphNorm(num_features, dtype=dtype, param_dtype=param_dtype, rngs=rngs)
        case "pair":
            return PairNorm(dtype=dtype)


def apply_norm(norm: Norm, x: Float[Array, "V F"], graph: CompressedGraph) -> Float[Array, "V F"]:
    """Normalise the rows of a graph's vertices, separately for each of many joined graphs (`GraphPrediction`).

    Only "batch" takes its statistics over all graphs, which in training are the training graphs.
    """
    return norm(x, graph) if isinstance(norm, GraphNorm | PairNorm) else norm(x)


def check_norm(kind: str) -> None:
    """Check that `kind` is a `NormKind`.

    Raises:
        ValueError: Unknown kind.
    """
    if kind not in get_args(NormKind):
        raise ValueError(f"norm must be one of {', '.join(get_args(NormKind))}, got {kind!r}")
