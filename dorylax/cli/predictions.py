"""A trained model's outputs: how right they are by mask, and as a file."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float32

from dorylax.durable import write_file
from dorylax.graph.dataset import Dataset
from dorylax.program.model.loss import confusion_counts, micro_f1

_MASKS = {"train": "train_mask", "val": "val_mask", "test": "test_mask"}


def mask_sizes(data: Dataset) -> dict[str, int]:
    """How many vertices there are in each mask."""
    return {name: int(getattr(data, mask).sum()) for name, mask in _MASKS.items()}


def scores(logits: Float32[np.ndarray, "V C"], data: Dataset) -> dict[str, float | None]:
    """Accuracy (micro-F1 for multi-label data) by mask, as fractions; None where the mask is empty."""
    masks = np.stack([getattr(data, name) for name in _MASKS.values()])
    counts = np.asarray(confusion_counts(*map(jax.numpy.asarray, (logits, data.labels, masks))))
    return {
        name: micro_f1(count) if mask.any() else None for name, count, mask in zip(_MASKS, counts, masks, strict=True)
    }


def write(path: Path, logits: Float32[np.ndarray, "V C"], data: Dataset) -> None:
    """Writes the predictions: an npz with the logits, or a table as CSV."""
    predictions: np.ndarray = logits > 0 if data.multilabel else logits.argmax(axis=1).astype(np.int32)
    if path.suffix == ".npz":
        write_file(path, lambda file: np.savez(file, logits=logits, predictions=predictions))
    else:
        write_file(path, _csv(predictions, data))


def _csv(predictions: np.ndarray, data: Dataset) -> str:
    """A row per vertex; of multi-label data, classes are separated by spaces."""
    split = np.select([getattr(data, name) for name in _MASKS.values()], list(_MASKS), default="")
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(("vertex", "prediction", "label", "split"))
    for vertex, (prediction, label) in enumerate(zip(predictions, data.labels, strict=True)):
        writer.writerow((vertex, _classes(prediction), _classes(label), split[vertex]))
    return stream.getvalue()


def _classes(value: Any) -> str:
    return " ".join(map(str, np.flatnonzero(value))) if np.ndim(value) else str(value)
