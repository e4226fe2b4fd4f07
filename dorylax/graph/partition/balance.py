"""What a partition spreads evenly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from jaxtyping import Int64

if TYPE_CHECKING:
    from dorylax.graph.compressed import CompressedGraph

Balance = Literal["vertices", "edges"]


def vertex_weights(graph: CompressedGraph, balance: Balance) -> Int64[np.ndarray, " V"]:
    """What is spread evenly, int64 `[V]`: 1 for each vertex, or its in-degree + 1 (its own row is work too)."""
    from dorylax.graph.normalise import in_degrees  # late: settings read `Balance` without JAX

    if balance == "vertices":
        return np.ones(graph.num_vertices, np.int64)
    return in_degrees(graph) + 1
