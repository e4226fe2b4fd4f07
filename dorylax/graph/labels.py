"""What the labels of a data set are: classes, zeros and ones (multi-label), or targets of a loss of the user's own.

Which of these is read off form and type, never off what is likely; where two could be meant, `Dataset` asks for
`num_classes` or `multilabel`.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool

from dorylax.graph.arrays import as_array, category_codes
from dorylax.graph.npz import Archive
from dorylax.graph.rows import spans
from dorylax.graph.validate import MAX_CLASSES, GraphError, check_binary, check_finite, check_length

_FORMS = "labels must be integers [V], or zeros and ones [V, C], or floating targets [V] or [V, T]"
_TEXT = "number the classes 0 … C-1 (np.unique(labels, return_inverse=True)[1])"


Kind = Literal["classes", "several", "pairs", "targets"]
"""Of labels: one class each, several classes each, pairs of vertices that are linked or not, numbers."""


def kind_of(num_classes: int | None, *, multilabel: bool) -> Kind:
    """The kind of a data set's labels."""
    return "targets" if num_classes is None else "several" if multilabel else "classes"


class Labels(NamedTuple):
    """Labels as a data set holds them.

    Attributes:
        array: int32 `[V]` classes, -1 where unlabelled; float32 `[V, C]` zeros and ones; float32 targets `[V]`, `[V, T]`.
        num_classes: C; None where they are targets.
        multilabel: whether they are `[V, C]`.
    """

    array: np.ndarray
    num_classes: int | None
    multilabel: bool


def checked_labels(labels: Any, num_vertices: int, num_classes: Any = None, multilabel: bool | None = None) -> Labels:
    """Labels of any number type, checked and converted.

    Args:
        labels: integers, truth values or a categorical column are classes; whole numbers of a floating type are, where
            `num_classes` is given. A column `[V, 1]` of classes is taken for `[V]`.
        num_vertices: V.
        num_classes: C; None takes one more than the largest class, or the number of columns.
        multilabel: whether `[V, C]` holds any number of classes for a vertex. Needed only where that cannot be seen.

    Raises:
        GraphError: they are none of the forms, do not fit `num_classes`, or could be meant in two ways.
    """
    given = None if num_classes is None else checked_num_classes(num_classes)
    array = as_array("labels", category_codes("labels", labels), _TEXT)
    if array.ndim not in (1, 2):
        raise GraphError(f"{_FORMS}, got shape {list(array.shape)}")
    check_length("labels", array, num_vertices, "one per vertex")
    floating = array.dtype.kind == "f"
    if array.ndim == 2 and array.shape[1] == 1 and not multilabel and (not floating or (given or 0) > 1):
        array = array[:, 0]
    if multilabel and array.ndim == 1:
        raise GraphError("multilabel=True needs labels [V, C], zeros and ones, got shape [V]")
    if array.ndim == 1:
        return _targets(array) if floating and given is None else _classes(array, given)
    if floating and given is None and not multilabel and (multilabel is False or not _is_binary(array)):
        return _targets(array)
    return _indicators(array, given, multilabel)


def stored_labels(archive: Archive, num_vertices: int) -> Labels:
    """The labels of an archive, with its `num_classes` and `multilabel` where it has them.

    Raises:
        GraphError: as `checked_labels`, or they are not there.
    """
    num_classes = archive.fetch("num_classes") if "num_classes" in archive else None
    multilabel = bool(archive.fetch("multilabel")) if "multilabel" in archive else None
    return checked_labels(archive.fetch("labels"), num_vertices, num_classes, multilabel)


def labelled(labels: np.ndarray) -> Bool[np.ndarray, " V"]:
    """The vertices that have a label, bool `[V]`: of classes all but -1."""
    classes = labels.ndim == 1 and labels.dtype.kind in "iu"
    return labels >= 0 if classes else np.ones(len(labels), bool)


def checked_num_classes(value: Any) -> int:
    """C, a whole number ≥ 1 that labels of int32 can count to.

    Raises:
        GraphError: it is something else.
    """
    number = np.asarray(value)
    if number.ndim != 0 or number.dtype.kind not in "iu":
        raise GraphError(f"num_classes must be one integer, got {number.dtype} {number.tolist()!r}")
    if not 1 <= number <= MAX_CLASSES:
        raise GraphError(f"num_classes must be ≥ 1 and ≤ {MAX_CLASSES} (labels are int32), got {number}")
    return int(number)


def _classes(array: np.ndarray, given: int | None) -> Labels:
    limit, limit_name = (MAX_CLASSES, "the largest number of classes") if given is None else (given, "num_classes")
    largest = -1
    for start, stop in spans(len(array)):
        chunk = array[start:stop]
        fits = (chunk >= -1) & (chunk < limit)
        if chunk.dtype.kind == "f":
            fits &= chunk == np.floor(chunk)
        if not fits.all():
            _raise_no_class(array, start + int(np.flatnonzero(~fits)[0]), limit, limit_name)
        largest = max(largest, int(chunk.max()))
    if largest < 0 and len(array):
        raise GraphError("labels are -1 at every vertex, which means unlabelled: at least one class is needed to train")
    return Labels(array.astype(np.int32, copy=False), max(largest + 1, 1) if given is None else given, multilabel=False)


def _raise_no_class(array: np.ndarray, k: int, limit: int, limit_name: str) -> None:
    value = array[k]
    where = f"labels[{k}] = {value}"
    if np.isnan(value):
        raise GraphError(f"{where} is not a class: give -1 where a vertex is unlabelled")
    if value != np.floor(value):
        raise GraphError(f"{where} is not a class, as num_classes = {limit} says: leave num_classes out for targets")
    fault = "negative" if value < 0 else "out of range"
    raise GraphError(
        f"{where} is {fault}: must be ≥ 0 and < {limit_name} = {limit}, or -1 where a vertex is unlabelled"
    )


def _targets(array: np.ndarray) -> Labels:
    if array.ndim == 2 and array.shape[1] == 0:
        raise GraphError(f"labels has shape {list(array.shape)}: expected at least one column of targets")
    with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite, and is then refused
        array = array.astype(np.float32, copy=False)
    check_finite(
        "labels", array, "give any number and leave the vertex out of all masks (of classes: -1, and num_classes)"
    )
    return Labels(array, None, multilabel=False)


def _is_binary(array: np.ndarray) -> bool:
    return all(((chunk == 0) | (chunk == 1)).all() for chunk in _chunks(array))


def _chunks(array: np.ndarray) -> Any:
    width = max(1, array.shape[1])
    return (array[start:stop] for start, stop in spans(len(array), max(1, (1 << 20) // width)))


def _indicators(array: np.ndarray, given: int | None, multilabel: bool | None) -> Labels:
    num_classes = checked_num_classes(array.shape[1]) if given is None else given
    if array.shape[1] != num_classes:
        raise GraphError(
            f"labels [V, C] has {array.shape[1]} columns: expected one per class, num_classes = {num_classes}"
        )
    if multilabel is False:
        raise GraphError(
            "multilabel=False, but labels has shape [V, C]: give one class per vertex, integers [V], or multilabel=True"
        )
    check_binary("labels", array)
    if multilabel is None and num_classes > 1:
        _check_not_one_hot(array)
    return Labels(array.astype(np.float32, copy=False), num_classes, multilabel=True)


def _check_not_one_hot(array: np.ndarray) -> None:
    """One class each, written as rows of zeros and ones, would be trained with another loss than its writer expects."""
    ones = 0
    for chunk in _chunks(array):
        counts = np.count_nonzero(chunk, axis=1)
        if (counts > 1).any():
            return
        ones += int(counts.sum())
    if ones:
        every = ones == len(array)
        remedy = "labels.argmax(axis=1)" if every else "np.where(labels.any(axis=1), labels.argmax(axis=1), -1)"
        rows = "exactly one 1 in every row" if every else "no row with more than one 1"
        raise GraphError(f"labels [V, C] has {rows}: give classes, {remedy}, or say multilabel=True")
