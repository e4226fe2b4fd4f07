"""Functions that are compiled ahead of time, and their arguments: a data set, and the other inputs of an epoch."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple, final

import jax
import numpy as np

from dorylax.graph.compressed import CompressedGraph
from dorylax.graph.dataset import Dataset
from dorylax.jax_internals import debugged, jit
from dorylax.program.model.base import Keywords, Tree, signature
from dorylax.program.tracing.arguments import RunData, training_weights
from dorylax.trainer.model_parts import further_inputs


class TrainingArrays(NamedTuple):
    """Arrays on the device, always passed as arguments, because XLA takes minutes to fold arrays in closures.

    Attributes:
        graph: V vertices.
        features: float32 `[V, F]`.
        named: Further inputs of the model: name → array.
        labels: int32 `[V]`, or float32 `[V, …]`. Here and below, V is the number of examples in tasks other than vertex
            tasks.
        masks: bool `[3, V]`: training, validation, test.
        weights: float32 `[V]`, the share of each vertex in the training loss.
    """

    graph: CompressedGraph
    features: Any
    labels: Any
    masks: Any
    weights: Any
    named: dict[str, Any]

    @classmethod
    def of(cls, data: Dataset, *, keywords: Keywords | None = None, edge_ids: bool = True) -> TrainingArrays:
        """Put a data set on the device; on CPUs, arrays made by `dorylax.aligned` are used without a copy.

        Args:
            data: The data set.
            keywords: The model's further inputs; None: none.
            edge_ids: Whether the model reads edge ids.
        """
        graph = data.graph if edge_ids else data.graph.without_edge_ids()
        masks = np.stack([data.train_mask, data.val_mask, data.test_mask])
        weights = training_weights(data.train_mask, np.result_type(np.float32, data.features.dtype))
        named = {} if keywords is None else further_inputs(data, keywords)
        arrays: TrainingArrays = jax.device_put(cls(graph, data.features, data.labels, masks, weights, named))
        return arrays

    @property
    def run_data(self) -> RunData:
        """The arrays in the form that programs take."""
        return RunData(self.graph, (self.features, *self.named.values()), self.labels, self.weights)


class EpochInputs(NamedTuple):
    """Inputs of an epoch other than parameters and state.

    Attributes:
        streams: The model's random streams, as before any epoch.
        kept: Values that are the same in every epoch, from the run's `Gradient.keep`.
        arrays: The data set.
        seed: Seed of the run, uint32.
        epoch: Number of the epoch, uint32.
    """

    streams: Tree
    kept: tuple[Any, ...]
    arrays: TrainingArrays
    seed: Any
    epoch: Any


@final
class Compiled:
    """A jitted function, compiled ahead of time once per argument shapes so that its compile time is known."""

    def __init__(self, function: Callable[..., Any], donate: tuple[int, ...] = ()) -> None:
        self._function = function
        self._jitted = jax.jit(function, donate_argnums=donate)
        self._executables: dict[Any, Callable[..., Any]] = {}

    def shapes(self, *args: Any) -> Any:
        """Abstract results for arguments of these shapes, without compilation."""
        return jax.eval_shape(self._function, *args)

    def prepare(self, *args: Any) -> tuple[Callable[..., Any], float]:
        """The executable for arguments of these shapes, and the seconds spent compiling it now (0 if it was cached).

        Under `jax_disable_jit` and `jax_debug_nans`, JAX runs the function operation by operation, always or after a NaN.
        It is then not compiled ahead of time and donates no arguments.
        """
        if debugged():
            return jit(self._function), 0.0
        key = signature(args)
        if key in self._executables:
            return self._executables[key], 0.0
        begin = time.perf_counter()
        self._executables[key] = self._jitted.lower(*args).compile()
        return self._executables[key], time.perf_counter() - begin
