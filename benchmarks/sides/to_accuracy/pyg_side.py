"""PyTorch Geometric on the whole graph, as its users write it: CSR, transform before gather, cached normalisation."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch_geometric.nn import GCNConv, SAGEConv

from sides.to_accuracy.recorder import SetUp
from sides.to_accuracy.settings import HIDDEN, Settings
from sides.to_accuracy.task import Task
from sides.to_accuracy.torch_training import TorchRun, TwoLayers, prepare_torch


def train(task: Task, settings: Settings, seed: int, limit: float) -> dict[str, Any]:
    """A run."""
    warnings.filterwarnings("ignore", message="Sparse (CSR tensor support is in beta|invariant checks are)")
    prepare_torch(seed)
    set_up = SetUp()
    columns = torch.from_numpy(task.neighbours).long()
    size = (task.num_vertices,) * 2
    adjacency = torch.sparse_csr_tensor(
        torch.from_numpy(task.offsets), columns, torch.ones(len(columns)), size, check_invariants=False
    )
    widths = (task.features.shape[1], HIDDEN, task.num_classes)
    if settings["model"] == "gcn":
        first, last = GCNConv(*widths[:2], cached=True), GCNConv(*widths[1:], cached=True)
    else:
        first, last = SAGEConv(*widths[:2]), SAGEConv(*widths[1:])
    model = TwoLayers(first, last, lambda layer, graph, x: layer(x, graph), settings["dropout"])
    return TorchRun(task, model, settings, (adjacency, adjacency), limit).whole_graph(set_up)
