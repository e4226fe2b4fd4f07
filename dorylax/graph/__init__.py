"""Graphs and data sets. `dorylax.graph.datasets` knows data sets by name."""

from dorylax.graph.compressed import Adjacency
from dorylax.graph.dataset import Dataset
from dorylax.graph.graph import Graph
from dorylax.graph.link_splits import Links, LinkSplit, link_split
from dorylax.graph.normalise import GCNNormalisation, gcn_normalisation, in_degrees, out_degrees
from dorylax.graph.splits import Split, per_class_split, public_split, random_split, stratified_split
from dorylax.graph.validate import GraphError

__all__ = [
    "Adjacency",
    "Dataset",
    "GCNNormalisation",
    "Graph",
    "GraphError",
    "LinkSplit",
    "Links",
    "Split",
    "gcn_normalisation",
    "in_degrees",
    "link_split",
    "out_degrees",
    "per_class_split",
    "public_split",
    "random_split",
    "stratified_split",
]
