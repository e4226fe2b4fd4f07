"""Graphs and data sets. `dorylax.graph.datasets` knows data sets by name."""

from dorylax.graph.dataset import Dataset
from dorylax.graph.graph import Adjacency, Graph
from dorylax.graph.normalise import GCNNormalisation, gcn_normalisation, in_degrees, out_degrees
from dorylax.graph.splits import seeded_split
from dorylax.graph.validate import GraphError

__all__ = [
    "Adjacency",
    "Dataset",
    "GCNNormalisation",
    "Graph",
    "GraphError",
    "gcn_normalisation",
    "in_degrees",
    "out_degrees",
    "seeded_split",
]
