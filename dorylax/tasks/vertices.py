"""`VertexPrediction`: a prediction for each vertex, of its class or its targets."""

from __future__ import annotations

import dataclasses
from typing import Literal, final

from dorylax.errors import InputError
from dorylax.graph.data_shape import AbstractData
from dorylax.graph.dataset import Dataset
from dorylax.tasks.base import Task

Labelled = Literal["classes", "targets"]
"""Kind of labels."""


@final
@dataclasses.dataclass(frozen=True)
class VertexPrediction(Task):
    """Predicts classes or targets of vertices, depending on the labels.

    Attributes:
        of: Required kind of labels; None: either.
    """

    of_vertices = True
    of: Labelled | None = None

    def prepare(self, data: Dataset) -> Dataset:
        """Return the data set.

        Raises:
            InputError: The labels are of the other kind.
        """
        check_labels(self.of, data)
        return data

    def outputs(self, data: Dataset | AbstractData) -> int:
        """Return C classes, or T targets."""
        return width_of(data)


def check_labels(of: Labelled | None, data: Dataset) -> None:
    """Check that the labels are of the required kind.

    Raises:
        InputError: The labels are of the other kind.
    """
    if of == "targets" and data.num_classes is not None:
        raise InputError(
            f"regression needs targets, and the labels of {data.name} are {data.num_classes} classes: give floating labels, "
            "as labels.astype(float), and no num_classes"
        )
    if of == "classes" and data.num_classes is None:
        raise InputError(
            f"classification needs classes, and the labels of {data.name} are targets: give integer labels, or num_classes "
            "beside them"
        )


def width_of(data: Dataset | AbstractData) -> int:
    """Return the number of outputs per label."""
    if data.num_classes is not None:
        return int(data.num_classes)
    return 1 if len(data.labels.shape) == 1 else int(data.labels.shape[1])
