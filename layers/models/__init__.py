"""Models: layers in depth, one file per published model, over one skeleton."""

from dorylax.layers.models.gat import GAT
from dorylax.layers.models.gcn import GCN
from dorylax.layers.models.gin import GIN
from dorylax.layers.models.mlp import MLP
from dorylax.layers.models.sage import GraphSAGE
from dorylax.layers.models.skeleton import Skeleton

__all__ = ["GAT", "GCN", "GIN", "MLP", "GraphSAGE", "Skeleton"]
