"""`gather`: every vertex reduces over its in-neighbours."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Array, Float

from dorylax.graph.graph import Graph, as_words
from dorylax.ops import segment
from dorylax.ops.degrees import in_degrees
from dorylax.ops.edge_gather import gather_edges
from dorylax.ops.scatter import scatter_src

Reduce = Literal["sum", "mean", "max", "min"]


def gather(
    graph: Graph, x: Float[Array, "V *rest"], edge_weight: Float[Array, "E *heads"] | None = None, *, reduce: Reduce = "sum"
) -> Float[Array, "V *rest"]:
    if edge_weight is not None and reduce in ("max", "min"):
        messages = scatter_src(graph, x)
        return gather_edges(graph, messages * edge_weight.reshape(*edge_weight.shape, *(1,) * (messages.ndim - edge_weight.ndim)), reduce=reduce)
    offsets, neighbours = as_words(graph.incoming.offsets), graph.incoming.neighbours
    shape = x.shape
    if edge_weight is None:
        y = segment.gather(x.reshape(shape[0], 1, -1), offsets, neighbours, "sum" if reduce == "mean" else reduce)
    else:
        heads = 1 if edge_weight.ndim == 1 else edge_weight.shape[1]
        y = segment.gather_weighted(x.reshape(shape[0], heads, -1), edge_weight.reshape(-1, heads), offsets, neighbours, None)
    y = y.reshape(shape)
    if reduce == "mean":
        degree = in_degrees(graph, x.dtype)
        y = y / degree.clip(1).reshape(-1, *(1,) * (x.ndim - 1))
    return y
