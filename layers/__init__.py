"""Graph layers and models in Flax NNX; `dorylax.ops` supplies all their graph operations."""

from dorylax.layers.appnp import APPNP, APPNPConv
from dorylax.layers.base import Conv
from dorylax.layers.dropout import Dropout
from dorylax.layers.gat import GAT, Attention, AttentionModel, GATConv
from dorylax.layers.gatv2 import GATv2, GATv2Conv
from dorylax.layers.gcn import GCN, GCNConv
from dorylax.layers.gcnii import GCNII, GCN2Conv
from dorylax.layers.gin import GIN, GINConv
from dorylax.layers.mlp import MLP
from dorylax.layers.model import Model
from dorylax.layers.mpnn import MPNN, MPNNConv
from dorylax.layers.norm import GraphNorm, PairNorm
from dorylax.layers.recipes import ModelSpec
from dorylax.layers.registry import MODELS, build
from dorylax.layers.sage import GraphSAGE, SAGEConv
from dorylax.layers.sgc import SGC, SGConv

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
    "Attention",
    "AttentionModel",
    "Conv",
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
    "Model",
    "ModelSpec",
    "PairNorm",
    "SAGEConv",
    "SGConv",
    "build",
]
