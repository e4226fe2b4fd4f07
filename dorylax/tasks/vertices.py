"""Something of each vertex: its class, or its targets."""

from __future__ import annotations

import dataclasses
from typing import Literal, final

from dorylax.graph.abstract import AbstractData
from dorylax.graph.dataset import Dataset
from dorylax.tasks.base import Task, TaskError

Labelled = Literal["classes", "targets"]
"""What labels are."""


@final
@dataclasses.dataclass(frozen=True)
class VertexPrediction(Task):
    """Classes or targets of vertices, as the labels have them.

    Attributes:
        of: which of the two the labels must be; None: either.
    """

    of_vertices = True
    of: Labelled | None = None

    def prepare(self, data: Dataset) -> Dataset:
        """The data set itself.

        Raises:
            TaskError: its labels are the other.
        """
        check_labels(self.of, data)
        return data

    def outputs(self, data: Dataset | AbstractData) -> int:
        """C classes, or T targets."""
        return width_of(data)


def check_labels(of: Labelled | None, data: Dataset) -> None:
    """Passes where the labels are what a task needs.

    Raises:
        TaskError: they are not.
    """
    if of == "targets" and data.num_classes is not None:
        raise TaskError(
            f"regression needs targets, and the labels of {data.name} are {data.num_classes} classes: give floating labels, "
            "as labels.astype(float), and no num_classes"
        )
    if of == "classes" and data.num_classes is None:
        raise TaskError(
            f"classification needs classes, and the labels of {data.name} are targets: give integer labels, or num_classes "
            "beside them"
        )


def width_of(data: Dataset | AbstractData) -> int:
    """How many numbers a label asks for."""
    if data.num_classes is not None:
        return int(data.num_classes)
    return 1 if len(data.labels.shape) == 1 else int(data.labels.shape[1])
