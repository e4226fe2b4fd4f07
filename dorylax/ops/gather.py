"""Reductions over the in-edges of each vertex: `gather` (the paper's GA), `gather_edges`, and degrees."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Num

from dorylax.graph.compressed import CompressedGraph
from dorylax.ops.primitives.extremum import collect_extremum, gather_extremum
from dorylax.ops.primitives.linear import collect, degrees, gather_sum, gather_weighted, self_loops
from dorylax.ops.primitives.structure import structure_of
from dorylax.ops.scatter import scatter_to_slots, to_slots
from dorylax.ops.shapes import AnyArray, check_rows, mean_dtypes

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
    if edge_weight is None:
        uncounted = structure_of(graph, edge_ids=False)
        return _reduced(
            graph,
            x,
            reduce,
            lambda rows: gather_sum(_flat(rows), uncounted, direction="in"),
            lambda extremum: gather_extremum(_flat(x), uncounted, reduce=extremum),
        )
    check_rows("edge_weight", edge_weight, "edges", graph.num_edges)
    if edge_weight.ndim > 2 or (edge_weight.ndim == 2 and x.shape[1:2] != edge_weight.shape[1:]):
        raise ValueError(
            f"edge_weight must have shape [E], or [E, H] beside x of shape [V, H, …]; got edge_weight "
            f"{list(edge_weight.shape)} beside x {list(x.shape)}"
        )
    edge_weight = jnp.asarray(edge_weight)
    dtype = jnp.promote_types(x.dtype, edge_weight.dtype)
    x, edge_weight = x.astype(dtype), to_slots(graph, edge_weight.astype(dtype))
    heads = edge_weight.shape[1] if edge_weight.ndim == 2 else 1

    def total(rows: Any) -> Any:
        weight = edge_weight.astype(rows.dtype)
        flat, weight = _flat(rows, heads), weight.reshape(edge_weight.shape[0], heads)
        return gather_weighted(flat, weight, structure_of(graph), direction="in")

    def extremum(kind: str) -> Any:
        messages = scatter_to_slots(graph, x, "out")
        weight = edge_weight.reshape(*edge_weight.shape, *(1,) * (messages.ndim - edge_weight.ndim))
        return collect_extremum(_flat(weight * messages), structure_of(graph), reduce=kind)

    return _reduced(graph, x, reduce, total, extremum)


def gather_edges(
    graph: CompressedGraph, e: Num[AnyArray, "E *rest"], *, reduce: Reduce = "sum"
) -> Num[Array, "V *rest"]:
    """Reduce over in-edges: `y[v] = reduce over edges i = (u → v) of e[i]`.

    Args:
        graph: The graph.
        e: Values per edge, `[E, …]`, in order of edge ids.
        reduce: "sum", "mean", "max" or "min".

    Returns:
        `[V, …]` in the dtype of `e`; a mean of integers is float32. A vertex without in-edges gets 0. Edges that tie for
        an extremum share its gradient equally.

    Raises:
        GraphError: Edges have no ids.
        ValueError: `e` does not have one row per edge, or `reduce` is unknown.
    """
    check_rows("e", e, "edges", graph.num_edges)
    e = to_slots(graph, jnp.asarray(e))
    return _reduced(
        graph,
        e,
        reduce,
        lambda rows: collect(_flat(rows), structure_of(graph), direction="in"),
        lambda extremum: collect_extremum(_flat(e), structure_of(graph), reduce=extremum),
    )


def _flat(x: Any, heads: int = 1) -> Any:
    """Return `[…, H, F]`, as primitives take rows."""
    return x.reshape(x.shape[0], heads, math.prod(x.shape[1:]) // max(heads, 1))


def _reduced(
    graph: CompressedGraph, x: Any, reduce: Reduce, total: Callable[[Any], Any], extremum: Callable[[str], Any]
) -> Any:
    """Return `[V, …]` with the axes of `x`, from its sums (of rows in a dtype wide enough for a mean) or its extrema."""
    if reduce in ("max", "min"):
        y = extremum(reduce)
        return y.reshape(y.shape[0], *x.shape[1:])
    if reduce not in ("sum", "mean"):
        raise ValueError(f"reduce must be one of sum, mean, max, min; got {reduce!r}")
    wide, narrow = mean_dtypes(x.dtype) if reduce == "mean" else (x.dtype, x.dtype)
    y = total(x.astype(wide))
    y = y.reshape(y.shape[0], *x.shape[1:])
    return _divided(y, in_degrees(graph)).astype(narrow) if reduce == "mean" else y


def _divided(y: Any, count: Any) -> Any:
    """Divide each row by its count; rows of count 0 stay unchanged."""
    return (y / jnp.maximum(count, 1).reshape(-1, *(1,) * (y.ndim - 1))).astype(y.dtype)


def in_degrees(graph: CompressedGraph, dtype: DTypeLike = jnp.float32) -> Num[Array, " V"]:
    """Return the number of in-edges of each vertex, `[V]`; an edge counts once, regardless of its weight."""
    return degrees(structure_of(graph, edge_ids=False), direction="in").astype(dtype)


def out_degrees(graph: CompressedGraph, dtype: DTypeLike = jnp.float32) -> Num[Array, " V"]:
    """Return the number of out-edges of each vertex, `[V]`."""
    return degrees(structure_of(graph, edge_ids=False), direction="out").astype(dtype)


def missing_self_loops(graph: CompressedGraph, dtype: DTypeLike = jnp.float32) -> Num[Array, " V"]:
    """Return 0 for vertices with an edge to themselves and 1 for all others, `[V]`.

    This is the weight of the *implicit* self-loop with which layers turn A into A + I. Existing loops keep their number, and
    no loop is stored.
    """
    if graph.self_loops == "none":
        return jnp.ones(graph.num_vertices, dtype)
    if graph.self_loops == "all":
        return jnp.zeros(graph.num_vertices, dtype)
    return (self_loops(structure_of(graph, edge_ids=False)) == 0).astype(dtype)
