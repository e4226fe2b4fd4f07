"""`gather_edges`."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Array, Float

from dorylax.graph.graph import Graph, as_words
from dorylax.ops import segment
from dorylax.ops.degrees import in_degrees


def gather_edges(graph: Graph, e: Float[Array, "E *rest"], *, reduce: Literal["sum", "mean", "max", "min"] = "sum") -> Float[Array, "V *rest"]:
    y = segment.reduce_entries(e, as_words(graph.incoming.offsets), "sum" if reduce == "mean" else reduce)
    if reduce == "mean":
        y = y / in_degrees(graph, e.dtype).clip(1).reshape(-1, *(1,) * (e.ndim - 1))
    return y
