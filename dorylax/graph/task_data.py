"""A data set as a task sees it whose examples are no vertices."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import final

import numpy as np

from dorylax.graph.graph import Graph
from dorylax.graph.labels import Kind


@final
@dataclasses.dataclass(frozen=True, eq=False)
class TaskData:
    """A graph as a model sees it, and N examples that are no vertices.

    Attributes are those of `Dataset`, but labels and masks have a row per example, and `vertex_inputs` map the examples
    to vertices. `kind` is that of the labels, `examples` names an example in messages, and `of_task` names the vertex
    inputs that the task makes: a model with `**kwargs` does not get them, because they are missing in prediction.
    """

    name: str
    graph: Graph
    features: np.ndarray
    labels: np.ndarray
    num_classes: int | None
    train_mask: np.ndarray
    val_mask: np.ndarray
    test_mask: np.ndarray
    vertex_inputs: Mapping[str, np.ndarray]
    edge_inputs: Mapping[str, np.ndarray]
    kind: Kind
    examples: str
    multilabel: bool = False
    of_task: tuple[str, ...] = ()
    class_names: np.ndarray | None = None

    @property
    def num_features(self) -> int:
        """F, the width of the features."""
        return int(self.features.shape[1])
