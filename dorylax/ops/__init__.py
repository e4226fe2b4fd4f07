"""Graph operators: the only operations of a model that use the graph.

Each is a JAX primitive with derivatives and batching. It runs as a native kernel on CPUs and as `jax.ops.segment_*`
elsewhere. `dorylax.program` cuts a model into tasks at these operators.
"""

from dorylax.ops.attention import additive_attention, edge_softmax
from dorylax.ops.gather import gather, gather_edges, in_degrees, missing_self_loops, out_degrees
from dorylax.ops.readout import global_mean, global_sum, readout
from dorylax.ops.row_random import edge_ids, loop_ids, vertex_ids
from dorylax.ops.scatter import scatter_dst, scatter_src

__all__ = [
    "additive_attention",
    "edge_ids",
    "edge_softmax",
    "gather",
    "gather_edges",
    "global_mean",
    "global_sum",
    "in_degrees",
    "loop_ids",
    "missing_self_loops",
    "out_degrees",
    "readout",
    "scatter_dst",
    "scatter_src",
    "vertex_ids",
]
