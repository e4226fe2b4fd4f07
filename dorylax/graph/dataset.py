"""`Dataset`: a graph with features, labels and masks, checked once when it is made.

Named data sets come from `dorylax.graph.datasets`; this knows only the arrays and their archive layout
(`dorylax.graph.npz`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt
from jaxtyping import Float32

from dorylax.aligned import empty, rows_of
from dorylax.graph import build, npz
from dorylax.graph.graph import Graph
from dorylax.graph.mapped import release
from dorylax.graph.reorder import reorder, user_order
from dorylax.graph.splits import seeded_split
from dorylax.graph.validate import (
    MAX_CLASSES,
    GraphError,
    as_integers,
    check_binary,
    check_disjoint,
    check_finite,
    check_length,
    check_numbers,
    check_permutation,
    check_range,
)

MASKS = ("train_mask", "val_mask", "test_mask")


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """A graph and what is known about its vertices; row i of every array is the vertex in row i of the graph.

    Arrays of other number types are converted (integer labels to int32, the rest to float32); arrays of the right type,
    memory-mapped ones included, are kept as they are.

    Args:
        name: what reports call it.
        graph: the graph, V vertices.
        features: float32 `[V, F]`.
        labels: the class of each vertex, int32 `[V]`, or the classes as zeros and ones, float32 `[V, C]` (multi-label).
        num_classes: C.
        train_mask: the vertices whose labels train the model, bool `[V]`, at least one.
        val_mask: the vertices that choose the epoch, bool `[V]`; may be empty, and their metric is then null.
        test_mask: the vertices that are reported on, bool `[V]`; may be empty, and their metric is then null.

    Raises:
        GraphError: a wrong length or type, a feature that is not finite, a label that is no class, overlapping masks.
    """

    name: str
    graph: Graph
    # Plain types, so that what is wrong with an array is said by the checks below and not by a type checker.
    features: np.ndarray
    labels: np.ndarray
    num_classes: int | None = None
    train_mask: Any = None
    val_mask: Any = None
    test_mask: Any = None
    vertex_inputs: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict, kw_only=True)
    edge_inputs: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", _checked_features(self.features, self.graph.num_vertices))
        for name in MASKS:
            if getattr(self, name) is None:
                object.__setattr__(self, name, np.full(self.graph.num_vertices, name == "train_mask"))
        if self.num_classes is not None:
            object.__setattr__(self, "num_classes", _checked_num_classes(self.num_classes))
            object.__setattr__(self, "labels", _checked_labels(self.labels, self.graph.num_vertices, self.num_classes))
        masks = {name: getattr(self, name) for name in MASKS}
        for name, mask in masks.items():
            if mask.dtype != bool or mask.ndim != 1:
                raise GraphError(f"{name} must be bool [V], one per vertex, got {mask.dtype} {list(mask.shape)}")
            check_length(name, mask, self.graph.num_vertices, "one per vertex")
        check_disjoint(masks)
        if not self.train_mask.any():
            raise GraphError("train_mask holds no vertex: at least one is needed to train")

    @property
    def num_features(self) -> int:
        """F, the width of the features."""
        return int(self.features.shape[1])

    @property
    def multilabel(self) -> bool:
        """Whether a vertex may have any number of classes."""
        return self.labels.ndim == 2 and self.num_classes is not None

    def row_normalised(self) -> Dataset:
        """With each row of the features divided by its sum.

        A sum below 1 counts as 1, so that rows without features stay zero: what PyTorch Geometric's `NormalizeFeatures`
        does, less the shift of negative features.
        """
        total = self.features.sum(axis=1, keepdims=True)
        scaled = np.divide(self.features, np.maximum(total, 1), out=empty(self.features.shape, np.float32))
        return dataclasses.replace(self, features=scaled)

    def reorder(self, order: npt.ArrayLike) -> Dataset:
        """Permutes graph, features, labels and masks: row `order[i]` moves to row i; see `Graph.reorder`."""
        order = as_integers("order", order)
        check_permutation("order", order, self.graph.num_vertices)
        rows: dict[str, Any] = {name: rows_of(getattr(self, name), order) for name in ("features", "labels", *MASKS)}
        further = {name: rows_of(array, order) for name, array in self.vertex_inputs.items()}
        return dataclasses.replace(self, graph=reorder(self.graph, order), vertex_inputs=further, **rows)

    def release(self) -> None:
        """Gives resident pages of memory-mapped arrays back to the system; the next read brings them in again."""
        rows = self.graph.incoming
        release(rows.offsets, rows.neighbours, self.features, self.labels, *(getattr(self, name) for name in MASKS))

    @staticmethod
    def from_npz(path: str | PathLike[str], *, split_seed: int = 0) -> Dataset:
        """Reads an archive of the layout that `dorylax.graph.npz` describes.

        Args:
            path: the file.
            split_seed: seeds the split (60 % / 20 % / 20 %, by class) where the archive has no masks. A `train_mask`
                alone is fine: the masks that are missing are then empty.

        Raises:
            FileNotFoundError: there is no such file.
            GraphError: it is not an npz archive, arrays are missing, or they do not make a data set.
        """
        with npz.open_npz(path) as archive:
            _require_data(archive)
            graph = build.from_archive(archive)
            labels = archive.fetch("labels")
            num_vertices = graph.num_vertices
            _check_label_form(labels, num_vertices)
            if "num_classes" in archive:
                num_classes = _checked_num_classes(archive.fetch("num_classes"))
            elif labels.ndim == 2:
                num_classes = labels.shape[1]
            else:
                check_range("labels", labels, MAX_CLASSES, "the largest number of classes")
                num_classes = int(labels.max(initial=0)) + 1
            if any(name in archive for name in MASKS):
                empty = np.zeros(num_vertices, bool)
                train, val, test = (archive.fetch(name) if name in archive else empty for name in MASKS)
            else:
                train, val, test = seeded_split(num_vertices, split_seed, labels)
            name = str(archive.fetch("name")) if "name" in archive else Path(fspath(path)).stem
            return Dataset(name, graph, npz.read_features(archive), labels, num_classes, train, val, test)

    def save_npz(self, path: str | PathLike[str]) -> None:
        """Writes the archive that `from_npz` reads, in the user's vertex order, and all of it or nothing.

        Raises:
            OSError: the file cannot be written.
        """
        restore = user_order(self.graph)
        data = self if restore is None else self.reorder(restore)
        by_source = data.graph.incoming if data.graph.symmetric else data.graph.outgoing
        arrays = {name: getattr(data, name) for name in ("features", "labels", *MASKS)}
        npz.write_npz(
            path,
            {
                "indptr": by_source.offsets,
                "indices": by_source.neighbours,
                "directed": np.array(not data.graph.symmetric),
                "self_loops": np.array(data.graph.self_loops),
                "num_classes": np.array(self.num_classes),
                "name": np.array(self.name),
                **arrays,
            },
        )


def _require_data(archive: npz.Archive) -> None:
    wanted = ["labels"] if "features_indptr" in archive else ["features", "labels"]
    try:
        archive.require(*wanted)
    except GraphError as error:
        raise GraphError(f"{error}. Without features and labels it is only a graph: Graph.from_npz reads it") from error


def _checked_features(features: np.ndarray, num_vertices: int) -> Float32[np.ndarray, "V F"]:
    check_numbers("features", features, "V F")
    if features.shape[1] == 0:
        raise GraphError(f"features has shape {list(features.shape)}: expected at least one column, F ≥ 1")
    check_length("features", features, num_vertices, "one row per vertex")
    with np.errstate(over="ignore"):  # a float64 too large for float32 becomes infinite, and is then refused
        features = features.astype(np.float32, copy=False)
    check_finite("features", features)
    return features


def _checked_num_classes(value: int | np.ndarray) -> int:
    number = np.asarray(value)
    if number.ndim != 0 or number.dtype.kind not in "iu":
        raise GraphError(f"num_classes must be one integer, got {number.dtype} {number.tolist()!r}")
    if not 1 <= number <= MAX_CLASSES:
        raise GraphError(f"num_classes must be ≥ 1 and ≤ {MAX_CLASSES} (labels are int32), got {number}")
    return int(number)


def _check_label_form(labels: np.ndarray, num_vertices: int) -> None:
    """Everything but the values."""
    if labels.ndim not in {1, 2}:
        raise GraphError(f"labels must be integers [V], or zeros and ones [V, C], got shape {list(labels.shape)}")
    if labels.ndim == 1:
        as_integers("labels", labels)
    else:
        check_numbers("labels", labels, "V C")
    check_length("labels", labels, num_vertices, "one per vertex")


def _checked_labels(labels: np.ndarray, num_vertices: int, num_classes: int) -> np.ndarray:
    _check_label_form(labels, num_vertices)
    if labels.ndim == 1:
        check_range("labels", labels, num_classes, "num_classes")  # before the cast, which would wrap
        return labels.astype(np.int32, copy=False)
    if labels.shape[1] != num_classes:
        raise GraphError(
            f"labels [V, C] has {labels.shape[1]} columns: expected one per class, num_classes = {num_classes}"
        )
    check_binary("labels", labels)
    return labels.astype(np.float32, copy=False)
