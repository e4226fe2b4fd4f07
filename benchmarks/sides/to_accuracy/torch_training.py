"""Training by torch, which its sides share: two layers, Adam, all cores; and whole graphs by it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, final

import torch

from dorylax.machine import cores
from sides.to_accuracy.recorder import Recorder, SetUp, run_record
from sides.to_accuracy.settings import Settings
from sides.to_accuracy.task import Task


@final
class TwoLayers(torch.nn.Module):
    """Two layers with ReLU between, dropout before each.

    Args:
        first, last: the layers.
        call: applies one of them: layer, what it knows of the graph, rows.
        dropout: share of the elements of each layer's input.
    """

    def __init__(
        self, first: torch.nn.Module, last: torch.nn.Module, call: Callable[..., torch.Tensor], dropout: float
    ) -> None:
        super().__init__()
        self.first, self.last, self._call, self._dropout = first, last, call, dropout

    def forward(self, graphs: Any, x: torch.Tensor) -> torch.Tensor:
        """Outputs.

        Args:
            graphs: of the first and of the last layer.
            x: features of what the first layer reads.
        """
        x = torch.nn.functional.dropout(x, self._dropout, self.training)
        x = torch.relu(self._call(self.first, graphs[0], x))
        x = torch.nn.functional.dropout(x, self._dropout, self.training)
        return self._call(self.last, graphs[1], x)


def prepare_torch(seed: int) -> None:
    """Uses all cores."""
    torch.set_num_threads(cores())
    torch.manual_seed(seed)


class TorchRun:
    """A run of a model.

    Args:
        task: what it learns.
        model: it.
        settings: of the optimizer.
        whole: the graphs of both layers for all vertices, for evaluations.
        limit: seconds of training.
    """

    def __init__(self, task: Task, model: torch.nn.Module, settings: Settings, whole: Any, limit: float) -> None:
        self._task, self._model, self._whole = task, model, whole
        self.features, self.labels = torch.from_numpy(task.features), torch.from_numpy(task.labels).long()
        self._optimizer = torch.optim.Adam(
            model.parameters(), lr=settings["learning_rate"], weight_decay=settings["weight_decay"]
        )
        self.recorder = Recorder(limit)
        self._steps = 0

    def step(self, graphs: Any, x: torch.Tensor, rows: torch.Tensor | None, labels: torch.Tensor) -> None:
        """Makes an update.

        Args:
            graphs: of both layers.
            x: features of what the first layer reads.
            rows: the outputs that count; None for all.
            labels: of these.
        """
        self._optimizer.zero_grad()
        out = self._model(graphs, x)
        torch.nn.functional.cross_entropy(out if rows is None else out[rows], labels).backward()
        self._optimizer.step()
        self._steps += 1

    def judge(self) -> None:
        """Evaluates on the whole graph, outside all time."""
        self.recorder.judge(self._steps, self._accuracies)

    def _accuracies(self) -> tuple[float, float]:
        self._model.eval()
        with torch.no_grad():
            predicted = self._model(self._whole, self.features).argmax(-1).numpy()
        self._model.train()
        return self._task.accuracies(predicted)

    def whole_graph(self, set_up: SetUp) -> dict[str, Any]:
        """Trains on all training vertices at once, evaluated after every step.

        The first step is made twice, once for nothing: what a library prepares in it is set-up.
        """
        rows = torch.from_numpy(self._task.train_mask.nonzero()[0])
        labels = self.labels[rows]
        before = [one.detach().clone() for one in self._model.parameters()]
        out = self._model(self._whole, self.features)
        torch.nn.functional.cross_entropy(out[rows], labels).backward()
        restore(self._model.parameters(), before)
        spent = set_up.over()
        while not self.recorder.enough:
            with self.recorder.training():
                self.step(self._whole, self.features, rows, labels)
            self.judge()
        return run_record(spent, self.recorder)


def restore(parameters: Iterable[torch.nn.Parameter], values: Iterable[torch.Tensor]) -> None:
    """Gives parameters the values that they had."""
    with torch.no_grad():
        for parameter, value in zip(parameters, values, strict=True):
            parameter.copy_(value)
