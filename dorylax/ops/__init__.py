"""Graph operators: what a model may do with a graph."""

from dorylax.ops.degrees import in_degrees, missing_self_loops
from dorylax.ops.edge_gather import gather_edges
from dorylax.ops.edge_softmax import edge_softmax
from dorylax.ops.gather import gather
from dorylax.ops.scatter import scatter_dst, scatter_src

__all__ = ["edge_softmax", "gather", "gather_edges", "in_degrees", "missing_self_loops", "scatter_dst", "scatter_src"]
