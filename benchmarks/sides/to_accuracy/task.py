"""What every side learns: a symmetric graph, features, labels and a split, in files that each side reads for itself."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np


class Task(NamedTuple):
    """A graph without self-loops, whose edges lie in both directions.

    Attributes:
        offsets: int64 `[V+1]`.
        neighbours: int32 `[E]`.
        features: float32 `[V, F]`.
        labels: int32 `[V]`, in 0 … C-1.
        train_mask, val_mask, test_mask: bool `[V]`.
    """

    offsets: np.ndarray
    neighbours: np.ndarray
    features: np.ndarray
    labels: np.ndarray
    train_mask: np.ndarray
    val_mask: np.ndarray
    test_mask: np.ndarray

    @property
    def num_vertices(self) -> int:
        """V."""
        return len(self.labels)

    @property
    def num_classes(self) -> int:
        """C."""
        return int(self.labels.max()) + 1

    def accuracies(self, predicted: np.ndarray) -> tuple[float, float]:
        """Shares of the validation and of the test vertices whose class is predicted, `[V]`."""
        right = predicted == self.labels
        return float(right[self.val_mask].mean()), float(right[self.test_mask].mean())


def write(folder: Path, task: Task) -> None:
    """Writes a task into an empty folder."""
    for name, array in task._asdict().items():
        np.save(folder / f"{name}.npy", array)


def read(folder: Path) -> Task:
    """Reads a task into memory."""
    return Task(*(np.load(folder / f"{name}.npy") for name in Task._fields))
