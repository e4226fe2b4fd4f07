"""Graph layers and models in Flax NNX; `dorylax.ops` supplies all their graph operations."""

from dorylax.layers.appnp import APPNPConv
from dorylax.layers.dropout import Dropout
from dorylax.layers.gat import GATConv
from dorylax.layers.gatv2 import GATv2Conv
from dorylax.layers.gcn import GCNConv
from dorylax.layers.gcn2 import GCN2Conv
from dorylax.layers.gin import GINConv
from dorylax.layers.graph_norm import GraphNorm
from dorylax.layers.models import APPNP, GAT, GCN, GCNII, GIN, MLP, MPNN, SGC, GATv2, GraphSAGE
from dorylax.layers.mpnn import MPNNConv
from dorylax.layers.pair_norm import PairNorm
from dorylax.layers.registry import MODELS, ModelSpec, build
from dorylax.layers.sage import SAGEConv
from dorylax.layers.sgc import SGConv

__all__ = [
    "APPNP",
    "GAT",
    "GCN",
    "GCNII",
    "GIN",
    "MLP",
    "MODELS",
    "MPNN",
    "SGC",
    "APPNPConv",
    "Dropout",
    "GATConv",
    "GATv2",
    "GATv2Conv",
    "GCN2Conv",
    "GCNConv",
    "GINConv",
    "GraphNorm",
    "GraphSAGE",
    "MPNNConv",
    "ModelSpec",
    "PairNorm",
    "SAGEConv",
    "SGConv",
    "build",
]
