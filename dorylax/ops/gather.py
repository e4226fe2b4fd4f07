"""`gather`: every vertex reduces the rows of its in-neighbours (the paper's GA)."""

from __future__ import annotations

import math
from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Num

from dorylax.graph.compressed import CompressedGraph
from dorylax.ops.degrees import in_degrees
from dorylax.ops.edge_gather import gather_slots
from dorylax.ops.edge_order import to_slots
from dorylax.ops.primitives.bilinear import gather_weighted
from dorylax.ops.primitives.extremum import gather_extremum
from dorylax.ops.primitives.linear import gather_sum
from dorylax.ops.primitives.structure import structure_of
from dorylax.ops.scatter import scatter_to_slots
from dorylax.ops.shapes import AnyArray, check_rows, divide_rows, mean_dtypes

Reduce = Literal["sum", "mean", "max", "min"]


def gather(
    graph: CompressedGraph,
    x: Num[AnyArray, "V *rest"],
    edge_weight: Num[AnyArray, "E *heads"] | None = None,
    *,
    reduce: Reduce = "sum",
) -> Num[Array, "V *rest"]:
    """Reduce over in-neighbours: `y[v] = reduce over edges e = (u → v) of edge_weight[e] · x[u]`.

    Args:
        graph: The graph.
        x: Values per vertex, `[V, …]`; `[V, H, …]` if `edge_weight` has H heads.
        edge_weight: A factor per edge, `[E]`, or per edge and head, `[E, H]`, in order of edge ids; 1 if None.
        reduce: "sum", "mean" (the sum over the number of in-edges, weighted or not), "max" or "min".

    Returns:
        `[V, …]` with the axes of `x`, in the common dtype of `x` and `edge_weight`; a mean of integers is float32. Sums of
        bfloat16 and float16 accumulate in float32. A vertex without in-edges gets 0. Edges that tie for an extremum share
        its gradient equally.

    Raises:
        GraphError: Weights are given and edges have no ids.
        ValueError: `x` or `edge_weight` does not have one row per vertex or edge, heads differ, or `reduce` is unknown.
    """
    check_rows("x", x, "vertices", graph.num_vertices)
    x = jnp.asarray(x)
    if edge_weight is not None:
        check_rows("edge_weight", edge_weight, "edges", graph.num_edges)
        if edge_weight.ndim > 2 or (edge_weight.ndim == 2 and x.shape[1:2] != edge_weight.shape[1:]):
            raise ValueError(
                f"edge_weight must have shape [E], or [E, H] beside x of shape [V, H, …]; got edge_weight "
                f"{list(edge_weight.shape)} beside x {list(x.shape)}"
            )
        edge_weight = jnp.asarray(edge_weight)
        dtype = jnp.promote_types(x.dtype, edge_weight.dtype)
        x, edge_weight = x.astype(dtype), to_slots(graph, edge_weight.astype(dtype))
    wide, narrow = mean_dtypes(x.dtype) if reduce == "mean" else (x.dtype, x.dtype)
    x, edge_weight = x.astype(wide), None if edge_weight is None else edge_weight.astype(wide)
    if reduce in ("max", "min"):
        if edge_weight is not None:
            messages = scatter_to_slots(graph, x, "out")
            weight = edge_weight.reshape(*edge_weight.shape, *(1,) * (messages.ndim - edge_weight.ndim))
            return gather_slots(graph, weight * messages, reduce)
        flat = x.reshape(x.shape[0], 1, math.prod(x.shape[1:]))
        y = gather_extremum(flat, structure_of(graph, edge_ids=False), reduce=reduce)
        return y.reshape(y.shape[0], *x.shape[1:])
    if reduce not in ("sum", "mean"):
        raise ValueError(f"reduce must be one of sum, mean, max, min; got {reduce!r}")
    if edge_weight is None:
        flat = x.reshape(x.shape[0], 1, math.prod(x.shape[1:]))
        y = gather_sum(flat, structure_of(graph, edge_ids=False), direction="in")
    else:
        heads = edge_weight.shape[1] if edge_weight.ndim == 2 else 1
        flat = x.reshape(x.shape[0], heads, math.prod(x.shape[1:]) // max(heads, 1))
        weight = edge_weight.reshape(edge_weight.shape[0], heads)
        y = gather_weighted(flat, weight, structure_of(graph), direction="in")
    y = y.reshape(y.shape[0], *x.shape[1:])
    return divide_rows(y, in_degrees(graph)).astype(narrow) if reduce == "mean" else y
