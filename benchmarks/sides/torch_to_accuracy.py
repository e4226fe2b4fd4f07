"""PyTorch Geometric and DGL on the whole graph, and DGL's neighbour sampling, as their examples have it.

All have two layers, Adam, all cores. DGL's wheel 2.1, the last for this Python on the package index, has libraries of
graphbolt for torch 2.0 to 2.2 and loads one of them when it is imported. Neither its layers nor its classic loader
(`dgl.dataloading`) need it, so an empty module stands in its place.
"""

from __future__ import annotations

import itertools
import os
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any, final

import torch

from dorylax.machine import cores
from sides.problem import Problem
from sides.recorder import HIDDEN, Recorder, Settings
from sides.torch_side import csr

_EVALUATIONS = 4
"""Of an epoch with samples, or as many as it has batches: an epoch is long."""

Call = Callable[..., torch.Tensor]


def train(problem: Problem, settings: Settings, seed: int, limit: float, *, side: str) -> dict[str, Any]:
    """A run of the side "pyg", "dgl" or "dgl-sampling"."""
    warnings.filterwarnings("ignore", message="Sparse (CSR tensor support is in beta|invariant checks are)")
    warnings.filterwarnings("ignore", message="Dataloader CPU affinity opt is not enabled")
    dgl = None if side == "pyg" else _load_dgl()
    torch.set_num_threads(cores())
    torch.manual_seed(seed)
    recorder = Recorder(limit)
    widths = (problem.features.shape[1], HIDDEN, problem.num_classes)
    if side == "pyg":
        graph, call, layers = _pyg(problem, settings["model"], widths)
    else:
        dgl.seed(seed)
        graph, call, layers = _dgl(dgl, problem, settings["model"], widths, sampling=side == "dgl-sampling")
    run = _Run(problem, _TwoLayers(layers, call, settings["dropout"]), settings, graph, recorder)
    return run.sampled(dgl, settings) if side == "dgl-sampling" else run.whole_graph()


def _pyg(problem: Problem, model: str, widths: tuple[int, ...]) -> tuple[Any, Call, list[Any]]:
    """The graph, how a layer is called with it, and the layers: CSR, transform before gather, cached normalisation."""
    from torch_geometric.nn import GCNConv, SAGEConv

    pairs = itertools.pairwise(widths)
    layers = [GCNConv(*pair, cached=True) if model == "gcn" else SAGEConv(*pair) for pair in pairs]
    return csr(problem), lambda layer, graph, x: layer(x, graph), layers


def _dgl(
    dgl: Any, problem: Problem, model: str, widths: tuple[int, ...], *, sampling: bool
) -> tuple[Any, Call, list[Any]]:
    """The same of DGL: `GraphConv` on a graph with self-loops, or `SAGEConv`.

    With samples the model "gcn" is its `SAGEConv` of the kind "gcn", the mean over neighbours and oneself, since a sample
    may miss a self-loop.
    """
    offsets, neighbours = torch.from_numpy(problem.offsets), torch.from_numpy(problem.neighbours).long()
    arrays = (offsets, neighbours, torch.empty(0, dtype=torch.long))
    graph = dgl.graph(("csc", arrays), num_nodes=problem.num_vertices)
    pairs, conv = itertools.pairwise(widths), dgl.nn.pytorch
    if model == "gcn" and not sampling:
        graph = dgl.add_self_loop(graph)
        layers = [conv.GraphConv(*pair) for pair in pairs]
    else:
        layers = [conv.SAGEConv(*pair, {"gcn": "gcn", "sage": "mean"}[model]) for pair in pairs]
    graph.create_formats_()
    return graph, lambda layer, graph, x: layer(graph, x), layers


@final
class _Absent(types.ModuleType):
    """A module that has a class by any name, since DGL names some of them as types."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def _load_dgl() -> Any:
    os.environ.setdefault("DGLBACKEND", "pytorch")  # else it asks for a file in the home directory
    sys.modules.setdefault("dgl.graphbolt", _Absent("dgl.graphbolt"))
    import dgl

    return dgl


@final
class _TwoLayers(torch.nn.Module):
    """Two layers with ReLU between, dropout before each."""

    def __init__(self, layers: list[Any], call: Call, dropout: float) -> None:
        super().__init__()
        (self.first, self.last), self._call, self._dropout = layers, call, dropout

    def forward(self, graphs: Any, x: torch.Tensor) -> torch.Tensor:
        """Outputs; `graphs` of both layers, `x` the features of the vertices that the first one reads."""
        x = torch.nn.functional.dropout(x, self._dropout, self.training)
        x = torch.relu(self._call(self.first, graphs[0], x))
        x = torch.nn.functional.dropout(x, self._dropout, self.training)
        return self._call(self.last, graphs[1], x)


@final
class _Run:
    def __init__(self, problem: Problem, model: _TwoLayers, settings: Settings, graph: Any, recorder: Recorder) -> None:
        self._problem, self._model, self._graph, self._recorder = problem, model, graph, recorder
        self._features, self._labels = torch.from_numpy(problem.features), torch.from_numpy(problem.labels).long()
        rates = {"lr": settings["learning_rate"], "weight_decay": settings["weight_decay"]}
        self._optimizer = torch.optim.Adam(model.parameters(), **rates)
        self._train = torch.from_numpy(problem.masks[0].nonzero()[0])
        self._steps = 0

    def whole_graph(self) -> dict[str, Any]:
        """Trains on all training vertices at once, evaluated after every step.

        A first backward pass goes nowhere: computations that a library caches in it are set-up.
        """
        graphs, labels = (self._graph, self._graph), self._labels[self._train]
        torch.nn.functional.cross_entropy(self._model(graphs, self._features)[self._train], labels).backward()
        while not self._recorder.enough:
            with self._recorder.training():
                self._step(graphs, self._features, self._train, labels)
            self._judge()
        return self._recorder.record()

    def sampled(self, dgl: Any, settings: Settings) -> dict[str, Any]:
        """Trains on mini-batches of training vertices and samples of their neighbours."""
        loader = dgl.dataloading.DataLoader(
            self._graph,
            self._train,
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
        while not self._recorder.enough:
            with self._recorder.training():
                for _ in range(every):
                    batch = next(batches, None)
                    if batch is None:
                        batches = iter(loader)
                        batch = next(batches)
                    read, written, blocks = batch
                    self._step(blocks, self._features[read], None, self._labels[written])
            self._judge()
        return self._recorder.record()

    def _step(self, graphs: Any, x: torch.Tensor, rows: torch.Tensor | None, labels: torch.Tensor) -> None:
        """An update; only some `rows` of the outputs count, if they are given."""
        self._optimizer.zero_grad()
        out = self._model(graphs, x)
        torch.nn.functional.cross_entropy(out if rows is None else out[rows], labels).backward()
        self._optimizer.step()
        self._steps += 1

    def _judge(self) -> None:
        """Evaluates on the whole graph, outside all time."""
        self._recorder.judge(self._steps, self._accuracies)

    def _accuracies(self) -> tuple[float, float]:
        self._model.eval()
        with torch.no_grad():
            predicted = self._model((self._graph, self._graph), self._features).argmax(-1).numpy()
        self._model.train()
        right = predicted == self._problem.labels
        return float(right[self._problem.masks[1]].mean()), float(right[self._problem.masks[2]].mean())
