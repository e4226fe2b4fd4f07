"""Degrees, and the symmetric normalisation of graph convolutional networks, on the host, for preparing and analysing data.

Layers compute the same inside JAX (`dorylax.ops.in_degrees`).
"""

from __future__ import annotations

import dataclasses
from typing import final

import numpy as np
from jaxtyping import Float32, Int64

from dorylax.graph.compressed import CompressedGraph, as_int64
from dorylax.graph.rows import count_values, rows_between, rows_with_loops, spans
from dorylax.graph.validate import GraphError, check_finite, check_length


@final
@dataclasses.dataclass(frozen=True, eq=False)
class GCNNormalisation:
    """The matrix D^-1/2 (A + I) D^-1/2, without its loops written out as edges.

    Attributes:
        scale: the diagonal of D^-1/2, float32 `[V]`; 0 where the degree is 0.
        edge_weight: `weight[e] · scale[source] · scale[target]` of each edge in order of edge ids, float32 `[E]`.
        loop_weight: the weight of the loop added at each vertex, float32 `[V]`; 0 where the graph has one already.
    """

    scale: Float32[np.ndarray, " V"]
    edge_weight: Float32[np.ndarray, " E"]
    loop_weight: Float32[np.ndarray, " V"]


def in_degrees(graph: CompressedGraph) -> Int64[np.ndarray, " V"]:
    """Number of in-edges of each vertex, int64 `[V]`; duplicates and loops count."""
    return np.diff(as_int64(graph.incoming.offsets))


def out_degrees(graph: CompressedGraph) -> Int64[np.ndarray, " V"]:
    """Number of out-edges of each vertex, int64 `[V]`; duplicates and loops count. Does not build `graph.outgoing`."""
    if graph.symmetric:
        return in_degrees(graph)
    return count_values(np.asarray(graph.incoming.neighbours), graph.num_vertices)


def gcn_normalisation(graph: CompressedGraph, edge_weight: np.ndarray | None = None) -> GCNNormalisation:
    """The normalisation of a graph convolution: weights by the in-degrees of A + I.

    I adds a loop of weight 1 to each vertex that lacks an edge to itself. This is PyTorch Geometric's `gcn_norm`, except
    that several loops at one vertex stay several here and are merged there.

    Args:
        graph: The graph, A.
        edge_weight: Weights ≥ 0 in order of edge ids, `[E]`; None is all ones (also if the graph has `edge_data`).

    Raises:
        GraphError: Edges have no ids, a wrong length, or a weight that is negative or not finite.

    References:
        Kipf and Welling, Semi-Supervised Classification with Graph Convolutional Networks, ICLR 2017, equation 2.
    """
    offsets, sources = graph.host_rows()
    order = graph.edge_order
    lacks_loop = ~rows_with_loops(offsets, sources)
    degree = lacks_loop.astype(np.float64)
    if edge_weight is None:
        degree += in_degrees(graph)
    else:
        check_length("edge_weight", edge_weight, graph.num_edges, "one per edge")
        check_finite("edge_weight", edge_weight)
        negative = np.flatnonzero(edge_weight < 0)
        if negative.size:
            raise GraphError(f"edge_weight[{negative[0]}] = {edge_weight[negative[0]]} is negative: must be ≥ 0")
        for start, stop in spans(len(sources)):
            rows = rows_between(offsets, start, stop)
            first, last = int(rows[0]), int(rows[-1])
            places = slice(start, stop) if order is None else order[start:stop]
            degree[first : last + 1] += np.bincount(rows - first, edge_weight[places])
    scale = np.zeros(graph.num_vertices)
    np.divide(1, np.sqrt(degree), out=scale, where=degree > 0)
    weight = np.empty(graph.num_edges, np.float32)
    for start, stop in spans(len(sources)):
        product = scale[sources[start:stop]] * scale[rows_between(offsets, start, stop)]
        places = slice(start, stop) if order is None else order[start:stop]
        weight[places] = product if edge_weight is None else product * edge_weight[places]
    return GCNNormalisation(scale.astype(np.float32), weight, (lacks_loop * scale**2).astype(np.float32))
