"""Outputs of a trained model: metrics by mask, and files of predictions."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import jax
import numpy as np

from dorylax.graph.array_names import CLASS_NAMES, ORIGINAL_IDS
from dorylax.graph.arrays import shown_names, stored_names
from dorylax.graph.dataset import Dataset
from dorylax.graph.labels import labelled
from dorylax.graph.reorder import user_order
from dorylax.store.durable import write_file
from dorylax.tasks import LinkPrediction
from dorylax.tasks.all_pairs import rank_among_all
from dorylax.trainer.step.objective import Objective

_ROWS = 1 << 20
_MASKS = {"train": "train_mask", "val": "val_mask", "test": "test_mask"}


def mask_sizes(data: Dataset) -> dict[str, int]:
    """Return the number of examples in each mask."""
    return {name: int(getattr(data, mask).sum()) for name, mask in _MASKS.items()}


def scores(outputs: np.ndarray, data: Dataset, objective: Objective) -> dict[str, float | None]:
    """Return the metric by mask; None for an empty mask.

    Rows are summed in blocks, since the outputs of a large graph may be on disk.
    """
    masks = [getattr(data, name) for name in _MASKS.values()]
    block = _ROWS if objective.measure.additive else max(1, len(outputs))
    total: Any = None
    for first in range(0, max(1, len(outputs)), block):
        rows = slice(first, first + block)
        given = (outputs[rows], data.labels[rows], np.stack([mask[rows] for mask in masks]))
        sums: Any = jax.device_get(objective.sums(*map(jax.numpy.asarray, given)))
        total = sums if total is None else total + sums
    numbered = enumerate(zip(_MASKS, masks, strict=True))
    return {name: objective.score(total, number) if mask.any() else None for number, (name, mask) in numbered}


def by_class(outputs: np.ndarray, data: Dataset) -> dict[str, dict[str, int | float]]:
    """Return class name → the number of test examples of the class and the share predicted right.

    It is empty for data without class names and for multi-label data.
    """
    if data.class_names is None or data.labels.ndim != 1:
        return {}
    labels = data.labels[data.test_mask]
    right = labels[outputs[data.test_mask].argmax(axis=1) == labels]
    counts, correct = (np.bincount(found, minlength=len(data.class_names)) for found in (labels, right))
    return {
        str(name): {"test_examples": int(count), "test_accuracy": int(hits) / int(count)}
        for name, count, hits in zip(data.class_names, counts, correct, strict=True)
        if count
    }


def ranked(rows: np.ndarray, data: Dataset, task: LinkPrediction) -> dict[str, dict[str, float]]:
    """Rank links among all possible links of their ends: mask → metric → value, for masks with links.

    Args:
        rows: Rows of the vertices.
        data: The whole graph, whose links are excluded from the competition.
        task: The task.
    """
    split = task.split(data)
    found = {}
    for name, part in (("val", split.val), ("test", split.test)):
        if not part.labels.any():
            continue
        among = rank_among_all(rows, part, data.graph, decoder=task.decoder)
        found[name] = {"mrr": among.mrr, **{f"hits_at_{k}": among.hits_at(k) for k in (10, 20, 50, 100)}}
    return found


def write(path: Path, outputs: np.ndarray, data: Dataset) -> None:
    """Write the predictions: an npz with the outputs (of classes: logits, and the classes), or a table as CSV.

    Rows are in the user's order of vertices, for any memory order of the data. Names of vertices and classes are included.
    """
    rows, ids = (user_order(data.graph), data.original_ids) if data.examples == "vertices" else (None, None)
    if data.num_classes is None:
        predictions = outputs.reshape(data.labels.shape)
    else:
        predictions = outputs > 0 if data.multilabel else outputs.argmax(axis=1).astype(np.int32)
    if path.suffix == ".npz":
        arrays = {"outputs" if data.num_classes is None else "logits": outputs, "predictions": predictions}
        names = {} if ids is None else {ORIGINAL_IDS: ids}
        if data.class_names is not None:
            names[CLASS_NAMES] = stored_names(CLASS_NAMES, data.class_names)
        write_file(path, lambda file: _write_npz(file, arrays, names, rows))
    else:
        write_file(path, lambda file: _write_csv(file, predictions, data, ids, rows))


def _write_npz(
    file: BinaryIO, arrays: Mapping[str, np.ndarray], names: Mapping[str, np.ndarray], order: np.ndarray | None
) -> None:
    """Write like `np.savez`, in blocks of rows: outputs of a large graph may be on disk, in another order than `names`."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in {**arrays, **names}.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                fields = {"descr": np.lib.format.dtype_to_descr(array.dtype), "fortran_order": False}
                np.lib.format.write_array_header_1_0(member, fields | {"shape": array.shape})
                for rows in _blocks(len(array), order if name in arrays else None):
                    member.write(np.ascontiguousarray(array[rows]).data)


def _write_csv(
    file: BinaryIO, predictions: np.ndarray, data: Dataset, ids: np.ndarray | None, order: np.ndarray | None
) -> None:
    """Write a row per example. Several numbers are separated by spaces, names of several classes by semicolons.

    The label of an unlabelled example is empty if classes have names or no example has a label.
    """
    known = labelled(data.labels).any()
    noun = "vertex" if data.examples == "vertices" else data.examples.removesuffix("s")
    stream = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow((noun, "prediction", "label", "split"))
    first = 0
    for rows in _blocks(len(predictions), order):
        split = np.select([getattr(data, name)[rows] for name in _MASKS.values()], list(_MASKS), default="")
        numbers = range(first, first := first + len(split))
        names = numbers if ids is None else shown_names(ids[numbers.start : numbers.stop])
        for name, prediction, label, where in zip(names, predictions[rows], data.labels[rows], split, strict=True):
            writer.writerow((name, _shown(prediction, data), _shown(label, data) if known else "", where))
    stream.detach()


def _blocks(count: int, order: np.ndarray | None) -> Iterator[np.ndarray | slice]:
    """Yield blocks of rows, in their stored order or in another."""
    for first in range(0, count, _ROWS):
        part = slice(first, first + _ROWS)
        yield part if order is None else order[part]


def _shown(value: Any, data: Dataset) -> str:
    names = data.class_names
    if np.ndim(value):
        several = np.flatnonzero(value) if data.multilabel else value
        return " ".join(map(str, several)) if names is None else ";".join(map(str, names[several]))
    if names is not None:
        return str(names[value]) if value >= 0 else ""
    return str(value)
