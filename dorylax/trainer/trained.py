"""A model with trained parameters, independent of the trainer and its data."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast, final

import jax
import jax.numpy as jnp
import numpy as np

from dorylax.errors import InputError
from dorylax.graph.compressed import CompressedGraph
from dorylax.graph.data_shape import AbstractData
from dorylax.graph.dataset import Dataset
from dorylax.graph.features import checked_features, checked_inputs
from dorylax.inference.artefact import RowInput, write_artefact
from dorylax.near_matches import did_you_mean
from dorylax.program.model.base import ModelParts, ModelStructure, Tree
from dorylax.trainer.step.compiled import Compiled


@final
@dataclasses.dataclass(frozen=True)
class InputSpec:
    """Inputs of a trained model other than the graph.

    Attributes:
        num_features: F, the number of columns of `x [V, F]`.
        further: Name → further input, of type bool, int32 or float32.
    """

    num_features: int
    further: Mapping[str, RowInput]

    @classmethod
    def of(cls, parts: ModelParts, data: Dataset | AbstractData) -> InputSpec:
        """Return the specification of a model on its training data."""
        groups = {"vertex": data.vertex_inputs, "edge": data.edge_inputs}
        there = {name: (per, array) for per, arrays in groups.items() for name, array in arrays.items()}
        further = {}
        for name in parts.keywords.taken(there, apart=data.of_task):
            per, array = there[name]
            further[name] = RowInput(
                "pair" if name in data.of_task else per, tuple(array.shape[1:]), np.dtype(array.dtype)
            )
        return cls(data.num_features, further)

    def checked(self, graph: Any, x: Any, given: Mapping[str, Any]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Check inputs; return features float32 `[V, F]` and name → further input, with the types of the training data.

        Args:
            graph: V vertices, E edges; its `edge_data` may hold inputs per edge.
            x: Features `[V, F]`, in any form that a `Dataset` accepts.
            given: Name → further input, in any form that a `Dataset` accepts.

        Raises:
            InputError: An input is missing, or differs in kind from the training data.
            GraphError: A `Dataset` would refuse the values.
        """
        if not isinstance(graph, CompressedGraph):
            raise InputError(
                f"graph must be a dorylax.Graph, got {type(graph).__name__}: Graph.from_edge_index(edge_index, V) makes one"
            )
        features = checked_features(x, graph.num_vertices)
        if features.shape[1] != self.num_features:
            raise InputError(
                f"x must have the {self.num_features} features per vertex that the model was trained with, got "
                f"{features.shape[1]}: x {list(features.shape)}"
            )
        return features, self._further(graph, given)

    def _further(self, graph: CompressedGraph, given: Mapping[str, Any]) -> dict[str, np.ndarray]:
        for name in given:
            if name not in self.further:
                known = did_you_mean(name, list(self.further)) if self.further else "it takes none beside graph and x"
                raise InputError(f"the model was not trained with an input {name!r}: {known}")
        came = graph.edge_data if graph.knows_edge_data else {}
        found = {}
        for name, wanted in self.further.items():
            per_edge = wanted.per == "edge"
            values = given.get(name, came.get(name) if per_edge else None)
            shape = [{"edge": "E", "vertex": "V", "pair": "N"}[wanted.per], *map(str, wanted.shape)]
            needs = f"{name}, {wanted.dtype} [{', '.join(shape)}]"
            if values is None:
                raise InputError(f"the model was trained with a further input: give {needs}")
            rows = {"edge": graph.num_edges, "vertex": graph.num_vertices}.get(wanted.per, _length(values))
            array = checked_inputs("inputs", {name: values}, rows, f"one row per {wanted.per}")[name]
            if array.dtype == np.int32 and wanted.dtype == np.float32:
                array = array.astype(np.float32)
            if array.shape[1:] != wanted.shape or array.dtype != wanted.dtype:
                raise InputError(f"the model was trained with {needs}, got {array.dtype} {list(array.shape)}")
            found[name] = array
        return found


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class TrainedModel:
    """A model with the parameters of one epoch, unaffected by further training.

    Attributes:
        parts: The model's parts.
        params: Parameters of the epoch, on the host.
        state: The model's other state, on the host.
        spec: Inputs of the model.
        edge_ids: Whether the model reads edge ids.
        data: Name of the training data.
        row_normalise: Whether the trainer's configuration row-normalised the features.
    """

    parts: ModelParts
    params: Tree
    state: Tree
    spec: InputSpec
    edge_ids: bool
    data: str
    row_normalise: bool

    @functools.cached_property
    def _passes(self) -> _Passes:
        return _passes(self.parts.structure)

    def bound(self) -> Any:
        """See `TrainResult.model`."""
        return self.parts.structure.bound(self.params, self.parts.streams, self.state)

    def predict(self, graph: Any, x: Any, **inputs: Any) -> Any:
        """See `TrainResult.predict`."""
        return jax.tree.map(np.array, self._run(self._passes.output, graph, x, inputs))

    def intermediates(self, graph: Any, x: Any, **inputs: Any) -> dict[str, np.ndarray]:
        """See `TrainResult.intermediates`."""
        found = self._run(self._passes.recorded, graph, x, inputs)
        return {name: np.array(value) for name, value in found.items()}

    def export(self, path: str | os.PathLike[str]) -> None:
        """See `TrainResult.export`."""
        write_artefact(
            Path(path),
            self.parts,
            self.params,
            self.state,
            features=self.spec.num_features,
            inputs=self.spec.further,
            data=self.data,
            row_normalise=self.row_normalise,
        )

    def _run(self, function: Compiled, graph: Any, x: Any, inputs: Mapping[str, Any]) -> Any:
        features, named = self.spec.checked(graph, x, inputs)
        needed = graph if self.edge_ids or not graph.edge_ids_fit else graph.without_edge_ids()
        data = jax.device_put((needed, features, named))
        arguments = (self.params, self.state, self.parts.streams, data)
        executable, _ = function.prepare(*arguments)
        return executable(*arguments)


class _Passes(NamedTuple):
    """Exact forward passes of the unmodified model: `(params, state, streams, (graph, x, further inputs)) -> …`.

    Attributes:
        output: The model's output, floating arrays as float32.
        recorded: Name → output of a layer.
    """

    output: Compiled
    recorded: Compiled


def _passes(structure: ModelStructure) -> _Passes:
    """Return the passes of a model: one object for equal structures, so that each size of graph is compiled once."""
    try:
        return _cached(cast(Hashable, structure))
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        return _cached.__wrapped__(structure)


@functools.lru_cache(maxsize=16)
def _cached(structure: Any) -> _Passes:
    def output(params: Tree, state: Tree, streams: Tree, data: tuple[Any, Any, dict[str, Any]]) -> Any:
        graph, x, named = data
        return jax.tree.map(_single, structure.apply_evaluate(params, streams, state, graph, x, **named))

    def recorded(params: Tree, state: Tree, streams: Tree, data: tuple[Any, Any, dict[str, Any]]) -> Any:
        graph, x, named = data
        return structure.apply_recorded(params, streams, state, graph, x, **named)

    return _Passes(Compiled(output), Compiled(recorded))


def _length(values: Any) -> int:
    return np.shape(values)[0] if np.ndim(values) else 0


def _single(leaf: Any) -> Any:
    return leaf.astype(jnp.float32) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf
