"""What a partition spreads evenly."""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Int64

from dorylax.graph.compressed import CompressedGraph
from dorylax.graph.normalise import in_degrees

Balance = Literal["vertices", "edges"]


def vertex_weights(graph: CompressedGraph, balance: Balance) -> Int64[np.ndarray, " V"]:
    """What is spread evenly, int64 `[V]`: 1 for each vertex, or its in-degree + 1 (its own row is work too)."""
    if balance == "vertices":
        return np.broadcast_to(np.int64(1), graph.num_vertices)  # takes no memory
    return in_degrees(graph) + 1
