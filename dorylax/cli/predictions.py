"""A trained model's outputs: how right they are by mask, and as a file."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dorylax.durable import write_file
from dorylax.graph.dataset import Dataset
from dorylax.graph.reorder import user_order
from dorylax.graph.task_data import TaskData
from dorylax.trainer.step.objective import Objective

_MASKS = {"train": "train_mask", "val": "val_mask", "test": "test_mask"}


def mask_sizes(data: Dataset | TaskData) -> dict[str, int]:
    """How many examples there are in each mask."""
    return {name: int(getattr(data, mask).sum()) for name, mask in _MASKS.items()}


def scores(outputs: np.ndarray, data: Dataset | TaskData, objective: Objective) -> dict[str, float | None]:
    """The metric by mask; None where the mask is empty."""
    masks = np.stack([getattr(data, name) for name in _MASKS.values()])
    sums: Any = jax.device_get(objective.sums(*map(jax.numpy.asarray, (outputs, data.labels, masks))))
    return {
        name: objective.score(sums, number) if mask.any() else None
        for number, (name, mask) in enumerate(zip(_MASKS, masks, strict=True))
    }


def write(path: Path, outputs: np.ndarray, data: Dataset | TaskData) -> None:
    """Writes the predictions: an npz with the outputs (of classes: logits, and the classes), or a table as CSV.

    Rows are in the order in which the user gave the vertices, whatever order the data are in.
    """
    rows = user_order(data.graph) if isinstance(data, Dataset) else None
    if rows is not None:
        outputs = outputs[rows]
    predictions = _predictions(outputs, data)
    if path.suffix == ".npz":
        arrays: dict[str, Any] = {"outputs" if data.num_classes is None else "logits": outputs}
        write_file(path, lambda file: np.savez(file, **arrays, predictions=predictions))
    else:
        write_file(path, _csv(predictions, data, slice(None) if rows is None else rows))


def _predictions(outputs: np.ndarray, data: Dataset | TaskData) -> np.ndarray:
    if data.num_classes is None:
        return outputs.reshape(data.labels.shape)
    return outputs > 0 if data.multilabel else outputs.argmax(axis=1).astype(np.int32)


def _csv(predictions: np.ndarray, data: Dataset | TaskData, rows: np.ndarray | slice) -> str:
    """A row per example; of multi-label data, classes are separated by spaces, and so are several targets."""
    split = np.select([getattr(data, name) for name in _MASKS.values()], list(_MASKS), default="")[rows]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow((_NAMES[data.examples] if isinstance(data, TaskData) else "vertex", "prediction", "label", "split"))
    for number, (prediction, label) in enumerate(zip(predictions, data.labels[rows], strict=True)):
        writer.writerow((number, _shown(prediction, data), _shown(label, data), split[number]))
    return stream.getvalue()


_NAMES = {"pairs": "pair", "graphs": "graph"}


def _shown(value: Any, data: Dataset | TaskData) -> str:
    if np.ndim(value):
        return " ".join(map(str, np.flatnonzero(value) if data.multilabel else value))
    return str(value)
