"""Graph layers and models in Flax NNX, on the operators of `dorylax.ops` alone."""

from dorylax.layers.dropout import Dropout
from dorylax.layers.gat import GATConv
from dorylax.layers.gcn import GCNConv
from dorylax.layers.gin import GINConv
from dorylax.layers.models import GAT, GCN, GIN, MLP, GraphSAGE
from dorylax.layers.registry import MODELS, ModelSpec, build
from dorylax.layers.sage import SAGEConv

__all__ = [
    "GAT",
    "GCN",
    "GIN",
    "MLP",
    "MODELS",
    "Dropout",
    "GATConv",
    "GCNConv",
    "GINConv",
    "GraphSAGE",
    "ModelSpec",
    "SAGEConv",
    "build",
]
