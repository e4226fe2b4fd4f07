"""Contract of a task: its examples, and the conversion of a model's rows of vertices into a row for each example."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any, Protocol, cast, final, runtime_checkable

import numpy as np

from dorylax.graph.data_shape import AbstractData
from dorylax.graph.dataset import Dataset
from dorylax.program.model.base import Keywords, ModelParts, Tree


class Task(ABC):
    """A training task: a frozen dataclass of plain values and functions."""

    of_vertices = False
    """Whether examples are vertices, so that the data set needs no conversion."""

    @abstractmethod
    def prepare(self, data: Dataset) -> Dataset:
        """Return the examples of a data set.

        Raises:
            GraphError, InputError: The data set lacks examples of this kind.
        """

    @abstractmethod
    def outputs(self, data: Dataset | AbstractData) -> int:
        """Return the width of the model's row of a vertex."""

    def wrap(self, parts: ModelParts, data: Dataset) -> ModelParts:  # noqa: ARG002
        """Return the model with a row per example instead of one per vertex."""
        return parts

    @property
    def description(self) -> dict[str, Any]:
        """Description of the task, as JSON values; it must match for a run to be continued."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(cast("Any", self))}
        shown = {name: getattr(value, "__qualname__", value) for name, value in fields.items()}
        return {"name": type(self).__name__, **shown}

    def redraw(self, data: Dataset, seed: int, epoch: int) -> Mapping[str, np.ndarray]:  # noqa: ARG002
        """Return name → array for the model inputs that change in this epoch; equal seeds and epochs give equal inputs."""
        return {}


@runtime_checkable
class Head(Protocol):
    """Converts rows of vertices into rows of examples; hashable."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its inputs."""
        ...

    def __call__(self, rows: Any, **inputs: Any) -> Any:
        """Convert `[V, …]` to `[N, …]`: a pure function, to be traced."""
        ...


@final
@dataclasses.dataclass(frozen=True)
class Headed:
    """Structure of a model followed by a head."""

    structure: Any
    head: Head
    shared: tuple[str, ...] = ()
    """Names of the head's inputs that the model takes, too."""

    def apply_train(self, params: Tree, streams: Tree, state: Tree, graph: Any, *inputs: Any, **named: Any) -> Any:
        """See `ModelStructure`."""
        own, theirs = self._split(named)
        rows, new_state = self.structure.apply_train(params, streams, state, graph, *inputs, **theirs)
        return self.head(rows, **own), new_state

    def apply_evaluate(self, params: Tree, streams: Tree, state: Tree, graph: Any, *inputs: Any, **named: Any) -> Any:
        """See `ModelStructure`."""
        own, theirs = self._split(named)
        return self.head(self.structure.apply_evaluate(params, streams, state, graph, *inputs, **theirs), **own)

    def apply_recorded(
        self, params: Tree, streams: Tree, state: Tree, graph: Any, *inputs: Any, **named: Any
    ) -> dict[str, Any]:
        """See `ModelStructure`; covers the model's layers, without the head."""
        found: dict[str, Any] = self.structure.apply_recorded(
            params, streams, state, graph, *inputs, **self._split(named)[1]
        )
        return found

    def bound(self, params: Tree, streams: Tree, state: Tree) -> Any:
        """See `ModelStructure`; returns the model without the head."""
        return self.structure.bound(params, streams, state)

    def _split(self, named: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        own = {name: named[name] for name in self.head.names}
        return own, {name: value for name, value in named.items() if name not in own or name in self.shared}


def headed(parts: ModelParts, head: Head, *, apart: Collection[str] = ()) -> ModelParts:
    """Return a model with a head, which takes the inputs of both.

    Args:
        parts: The model.
        head: The head.
        apart: Inputs of the head that a model receives only if its signature names them (`Dataset.of_task`).
    """
    taken = parts.keywords
    keywords = Keywords((*taken.names, *head.names), (*taken.required, *head.names), taken.any)
    structure = Headed(parts.structure, head, taken.taken(head.names, apart=apart))
    return dataclasses.replace(parts, structure=structure, keywords=keywords)
