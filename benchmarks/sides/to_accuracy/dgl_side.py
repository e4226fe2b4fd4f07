"""DGL on the whole graph, as its examples do it: `GraphConv` on a graph with self-loops, or `SAGEConv`."""

from __future__ import annotations

from typing import Any

from sides.to_accuracy.dgl_loading import graph_of, load_dgl
from sides.to_accuracy.recorder import SetUp
from sides.to_accuracy.settings import HIDDEN, Settings
from sides.to_accuracy.task import Task
from sides.to_accuracy.torch_training import TorchRun, TwoLayers, prepare_torch


def train(task: Task, settings: Settings, seed: int, limit: float) -> dict[str, Any]:
    """A run."""
    dgl = load_dgl()
    prepare_torch(seed)
    set_up = SetUp()
    graph = graph_of(dgl, task)
    widths = (task.features.shape[1], HIDDEN, task.num_classes)
    layers = dgl.nn.pytorch
    if settings["model"] == "gcn":
        graph = dgl.add_self_loop(graph)
        first, last = layers.GraphConv(*widths[:2]), layers.GraphConv(*widths[1:])
    else:
        first, last = layers.SAGEConv(*widths[:2], "mean"), layers.SAGEConv(*widths[1:], "mean")
    graph.create_formats_()
    model = TwoLayers(first, last, lambda layer, graph, x: layer(graph, x), settings["dropout"])
    return TorchRun(task, model, settings, (graph, graph), limit).whole_graph(set_up)
