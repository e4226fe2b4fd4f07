"""What jitted functions take: a data set, and all that an epoch is computed from besides the run's state."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from dorylax.graph.compressed import CompressedGraph
from dorylax.graph.dataset import Dataset
from dorylax.graph.task_data import TaskData
from dorylax.program.model.base import Keywords, Tree
from dorylax.program.tracing.arguments import RunData, training_weights
from dorylax.trainer.model_parts import further_inputs


class TrainingArrays(NamedTuple):
    """Arrays on the device, always arguments: what a jitted function closes over, XLA folds for minutes.

    Attributes:
        graph: V vertices.
        features: float32 `[V, F]`.
        named: further inputs that the model takes, by name.
        labels: int32 `[V]`, or float32 `[V, …]`; a row per example, where these are no vertices.
        masks: bool `[3, V]`: training, validation, test; likewise.
        weights: float32 `[V]`, each vertex's share of the training loss; likewise.
    """

    graph: CompressedGraph
    features: Any
    labels: Any
    masks: Any
    weights: Any
    named: dict[str, Any]

    @classmethod
    def of(cls, data: Dataset | TaskData, *, keywords: Keywords | None = None, edge_ids: bool = True) -> TrainingArrays:
        """Those of a data set on the device, which on CPUs takes arrays where they lie if `dorylax.aligned` made them.

        Args:
            data: the data set.
            keywords: which further inputs the model takes; None: none.
            edge_ids: whether anything reads edge ids.
        """
        graph = data.graph if edge_ids else data.graph.without_edge_ids()
        masks = np.stack([data.train_mask, data.val_mask, data.test_mask])
        weights = training_weights(data.train_mask, np.result_type(np.float32, data.features.dtype))
        named = {} if keywords is None else further_inputs(data, keywords)
        arrays: TrainingArrays = jax.device_put(cls(graph, data.features, data.labels, masks, weights, named))
        return arrays

    @property
    def run_data(self) -> RunData:
        """The same as a program takes them."""
        return RunData(self.graph, (self.features, *self.named.values()), self.labels, self.weights)


class EpochInputs(NamedTuple):
    """What an epoch is computed from besides parameters and state.

    Attributes:
        streams: the model's random streams, as before any epoch.
        kept: what is the same in every epoch, as the run's `Gradient.keep` gives it.
        arrays: the data set.
        seed: of the run, uint32.
        epoch: its number, uint32.
    """

    streams: Tree
    kept: tuple[Any, ...]
    arrays: TrainingArrays
    seed: Any
    epoch: Any
