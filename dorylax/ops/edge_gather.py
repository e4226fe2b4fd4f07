"""`gather_edges`: every vertex reduces the values of its in-edges."""

from __future__ import annotations

import math
from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Num

from dorylax.graph.compressed import CompressedGraph
from dorylax.ops.degrees import in_degrees
from dorylax.ops.edge_order import to_slots
from dorylax.ops.primitives.extremum import collect_extremum
from dorylax.ops.primitives.linear import collect
from dorylax.ops.primitives.structure import structure_of
from dorylax.ops.shapes import AnyArray, check_rows, divide_rows, mean_dtypes


def gather_edges(
    graph: CompressedGraph, e: Num[AnyArray, "E *rest"], *, reduce: Literal["sum", "mean", "max", "min"] = "sum"
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
    return gather_slots(graph, to_slots(graph, jnp.asarray(e)), reduce)


def gather_slots(graph: CompressedGraph, e: Num[AnyArray, "E *rest"], reduce: str) -> Num[Array, "V *rest"]:
    """Run `gather_edges` on values in slot order."""
    flat = e.reshape(e.shape[0], 1, math.prod(e.shape[1:]))
    if reduce in ("max", "min"):
        y = collect_extremum(flat, structure_of(graph), reduce=reduce)
        return y.reshape(y.shape[0], *e.shape[1:])
    if reduce not in ("sum", "mean"):
        raise ValueError(f"reduce must be one of sum, mean, max, min; got {reduce!r}")
    wide, narrow = mean_dtypes(e.dtype) if reduce == "mean" else (e.dtype, e.dtype)
    y = collect(flat.astype(wide), structure_of(graph), direction="in")
    y = y.reshape(y.shape[0], *e.shape[1:])
    return divide_rows(y, in_degrees(graph)).astype(narrow) if reduce == "mean" else y
