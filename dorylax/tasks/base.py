"""The contract of a task: what its examples are, and how a model's rows of vertices become a row for each of them."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any, Protocol, cast, final, runtime_checkable

import numpy as np

from dorylax.errors import DorylaxError
from dorylax.graph.abstract import AbstractData
from dorylax.graph.dataset import Dataset
from dorylax.graph.task_data import TaskData
from dorylax.program.model.base import Keywords, ModelParts, Tree


@final
class TaskError(DorylaxError, ValueError):
    """The data are not what the task needs, or it cannot be done in the way that is asked for."""


class Task(ABC):
    """What a model is trained for: a frozen dataclass of plain values and functions."""

    of_vertices = False
    """Whether examples are vertices, so that data are the data set itself."""

    @abstractmethod
    def prepare(self, data: Dataset) -> Dataset | TaskData:
        """The examples of a data set.

        Raises:
            GraphError, TaskError: it has none of this kind.
        """

    @abstractmethod
    def outputs(self, data: Dataset | AbstractData) -> int:
        """How wide the model's row of a vertex is to be."""

    def wrap(self, parts: ModelParts, data: Dataset | TaskData) -> ModelParts:  # noqa: ARG002
        """The model with a row per example in the place of one per vertex."""
        return parts

    @property
    def description(self) -> dict[str, Any]:
        """What the task is, as JSON values: a run is continued by the same."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(cast("Any", self))}
        shown = {name: getattr(value, "__qualname__", value) for name, value in fields.items()}
        return {"name": type(self).__name__, **shown}

    def redraw(self, data: Dataset | TaskData, seed: int, epoch: int) -> Mapping[str, np.ndarray]:  # noqa: ARG002
        """Inputs of the model by name that are others in this epoch: the same for the same seed and epoch."""
        return {}


@runtime_checkable
class Head(Protocol):
    """Makes rows of examples of rows of vertices; hashable."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of the inputs that it takes."""
        ...

    def __call__(self, rows: Any, **inputs: Any) -> Any:
        """`[V, …]` → `[N, …]`: a pure function, to be traced."""
        ...


@final
@dataclasses.dataclass(frozen=True)
class Headed:
    """The structure of a model, followed by a head."""

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
        """See `ModelStructure`: the model's layers, without the head."""
        found: dict[str, Any] = self.structure.apply_recorded(
            params, streams, state, graph, *inputs, **self._split(named)[1]
        )
        return found

    def bound(self, params: Tree, streams: Tree, state: Tree) -> Any:
        """See `ModelStructure`: the model, without the head."""
        return self.structure.bound(params, streams, state)

    def _split(self, named: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        own = {name: named[name] for name in self.head.names}
        return own, {name: value for name, value in named.items() if name not in own or name in self.shared}


def headed(parts: ModelParts, head: Head, *, apart: Collection[str] = ()) -> ModelParts:
    """A model with a head, which takes the inputs of both.

    Args:
        parts: the model.
        head: what follows it.
        apart: inputs of the head's that a model gets only by its signature (`TaskData.of_task`).
    """
    taken = parts.keywords
    keywords = Keywords((*taken.names, *head.names), (*taken.required, *head.names), taken.any)
    structure = Headed(parts.structure, head, taken.taken(head.names, apart=apart))
    return dataclasses.replace(parts, structure=structure, keywords=keywords)
