"""Models: stacks of layers, one file per published model, most of them built on one skeleton."""

from dorylax.layers.models.appnp import APPNP
from dorylax.layers.models.gat import GAT
from dorylax.layers.models.gatv2 import GATv2
from dorylax.layers.models.gcn import GCN
from dorylax.layers.models.gcnii import GCNII
from dorylax.layers.models.gin import GIN
from dorylax.layers.models.mlp import MLP
from dorylax.layers.models.mpnn import MPNN
from dorylax.layers.models.sage import GraphSAGE
from dorylax.layers.models.sgc import SGC
from dorylax.layers.models.skeleton import Skeleton

__all__ = ["APPNP", "GAT", "GCN", "GCNII", "GIN", "MLP", "MPNN", "SGC", "GATv2", "GraphSAGE", "Skeleton"]
