"""DGL by neighbour sampling, as its example does it: mini-batches of training vertices and samples of their neighbours.

The model "gcn" is its `SAGEConv` of the kind "gcn", the mean over neighbours and oneself, since a sample may miss a
self-loop. Evaluations are on the whole graph, as everybody's.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

from sides.to_accuracy.dgl_loading import graph_of, load_dgl
from sides.to_accuracy.recorder import SetUp, run_record
from sides.to_accuracy.settings import HIDDEN, Settings
from sides.to_accuracy.task import Task
from sides.to_accuracy.torch_training import TorchRun, TwoLayers, prepare_torch

_EVALUATIONS = 4
"""Of an epoch, or as many as it has batches: an epoch is long."""


def train(task: Task, settings: Settings, seed: int, limit: float) -> dict[str, Any]:
    """A run."""
    dgl = load_dgl()
    warnings.filterwarnings("ignore", message="Dataloader CPU affinity opt is not enabled")
    prepare_torch(seed)
    dgl.seed(seed)
    set_up = SetUp()
    graph = graph_of(dgl, task)
    graph.create_formats_()
    widths = (task.features.shape[1], HIDDEN, task.num_classes)
    kind = {"gcn": "gcn", "sage": "mean"}[settings["model"]]
    first, last = (dgl.nn.pytorch.SAGEConv(*widths[k : k + 2], kind) for k in (0, 1))
    model = TwoLayers(first, last, lambda layer, graph, x: layer(graph, x), settings["dropout"])
    run = TorchRun(task, model, settings, (graph, graph), limit)
    loader = dgl.dataloading.DataLoader(
        graph,
        torch.from_numpy(task.train_mask.nonzero()[0]),
        dgl.dataloading.NeighborSampler([settings["fanout"]] * 2),
        batch_size=settings["batch"],
        shuffle=True,
        num_workers=settings["workers"],
        persistent_workers=settings["workers"] > 0,
        # Linux's usual one; this process was spawned, and would spawn its own.
        multiprocessing_context="fork" if settings["workers"] else None,
    )
    every = max(1, len(loader) // _EVALUATIONS)
    batches = iter(loader)  # starts the workers
    spent = set_up.over()
    while not run.recorder.enough:
        with run.recorder.training():
            for _ in range(every):
                batch = next(batches, None)
                if batch is None:
                    batches = iter(loader)
                    batch = next(batches)
                read, written, blocks = batch
                run.step(blocks, run.features[read], None, run.labels[written])
        run.judge()
    return run_record(spent, run.recorder)
