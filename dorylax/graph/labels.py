"""Labels of a data set (classes, zeros and ones for multi-label data, or targets of a custom loss), and masks of vertices.

Shape and type decide the kind of labels. If two kinds are possible, `Dataset` asks for `num_classes` or `multilabel`. A mask
holds truth values, zeros and ones, or vertex numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool

from dorylax.graph.array_names import CLASS_NAMES, MASKS
from dorylax.graph.arrays import as_array, class_codes, shown_names, stored_names
from dorylax.graph.rows import row_spans, spans
from dorylax.graph.stored import StoredArrays
from dorylax.graph.validate import MAX_CLASSES, GraphError, as_held, check_binary, check_length

_TEXT = "number the classes 0 … C-1 (np.unique(labels, return_inverse=True)[1])"


Kind = Literal["classes", "several", "pairs", "targets"]
"""Of labels: one class each, several classes each, pairs of vertices that are linked or not, numbers."""


def kind_of(num_classes: int | None, *, multilabel: bool) -> Kind:
    """The kind of a data set's labels."""
    return "targets" if num_classes is None else "several" if multilabel else "classes"


class Labels(NamedTuple):
    """Labels as a data set holds them.

    Attributes:
        array: int32 `[V]` classes, -1 where unlabelled; float32 `[V, C]` zeros and ones; float32 targets `[V]`, `[V,
            T]`. Without any label, the floating forms are NaN everywhere.
        num_classes: C; None for targets.
        multilabel: Whether labels are `[V, C]`.
        class_names: Text `[C]`, or None.
    """

    array: np.ndarray
    num_classes: int | None
    multilabel: bool
    class_names: np.ndarray | None = None


def named_labels(
    labels: Any,
    num_vertices: int,
    num_classes: Any = None,
    multilabel: bool | None = None,
    class_names: Any = None,
    *,
    targets: tuple[int, ...] = (),
) -> Labels:
    """Labels of any form, with the names of their classes.

    Args:
        labels: As for `checked_labels`; or text `[V]`, whose sorted values are the classes; or None for no label at
            all.
        num_vertices: V.
        num_classes: C; None takes the number of names, or as `checked_labels`.
        multilabel: As for `checked_labels`.
        class_names: C names; None takes those of the labels.
        targets: Shape of a row of targets, if labels and `num_classes` are None.

    Raises:
        GraphError: As `checked_labels`, or names and classes differ in number.
    """
    names = None if class_names is None else shown_names(stored_names("class_names", class_names)).astype(str)
    codes, own = class_codes("labels", labels)
    if own is not None:
        own_names = shown_names(stored_names("class_names", own)).astype(str)
        if names is not None:
            codes = renumbered(codes, own_names, names)
        names = own_names if names is None else names
    if names is not None and num_classes is None:
        num_classes = len(names)
    if codes is None:
        row = targets if num_classes is None else (num_classes,) if multilabel else ()
        classes = num_classes is not None and not multilabel
        codes = np.full((num_vertices, *row), -1 if classes else np.nan, np.int32 if classes else np.float32)
    found = checked_labels(codes, num_vertices, num_classes, multilabel)
    if names is not None and len(names) != found.num_classes:
        raise GraphError(
            f"{len(names)} classes have names, num_classes = {found.num_classes}: give each class one name"
        )
    return found._replace(class_names=names)


def renumbered(codes: np.ndarray, names: np.ndarray, class_names: np.ndarray) -> np.ndarray:
    """Codes of classes `[V]`, positions in `names` or -1 for no class, as positions in `class_names`.

    Raises a GraphError if a class that occurs is not one of `class_names`.
    """
    number = {name: code for code, name in enumerate(class_names.tolist())}
    table = np.array([*(number.get(name, -2) for name in names.tolist()), -1], np.int32)
    found: np.ndarray = table[np.asarray(codes, np.int64)]
    if (unknown := np.flatnonzero(found == -2)).size:
        listed = ", ".join(map(repr, class_names[:5].tolist())) + (", …" if len(class_names) > 5 else "")
        k = unknown[0]
        raise GraphError(f"labels[{k}] is the class {str(names[codes[k]])!r}, which is not one of {listed}")
    return found


def checked_labels(labels: Any, num_vertices: int, num_classes: Any = None, multilabel: bool | None = None) -> Labels:
    """Labels of any number type, checked and converted.

    Args:
        labels: Integers and truth values are classes; so are whole numbers of a floating type if `num_classes` is
            given. A column `[V, 1]` of classes is taken for `[V]`.
        num_vertices: V.
        num_classes: C; None takes one more than the largest class, or the number of columns.
        multilabel: Whether `[V, C]` holds any number of classes for a vertex; needed only if the values do not show it.

    Raises:
        GraphError: They are none of the forms, do not fit `num_classes`, or could be meant in two ways.
    """
    given = None if num_classes is None else checked_num_classes(num_classes)
    array = as_array("labels", labels, _TEXT)
    if array.ndim not in (1, 2):
        raise GraphError(
            "labels must be integers [V], or zeros and ones [V, C], or floating targets [V] or [V, T], got shape "
            f"{list(array.shape)}"
        )
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


def stored_labels(stored: StoredArrays, num_vertices: int, known: Labels | None = None) -> Labels:
    """The labels of an archive, with its `num_classes`, `multilabel` and `class_names` if it has them.

    `known` are the labels of a model's training data. Their classes then become those of the archive, matched by their names
    if both have names, and the archive may lack labels.

    Raises a GraphError as `checked_labels`, or if the archive lacks labels, or a class is not a known one.
    """
    labels = stored.fetch("labels") if known is None or "labels" in stored else None
    num_classes: Any = stored.fetch("num_classes") if "num_classes" in stored else None
    multilabel = bool(stored.fetch("multilabel")) if "multilabel" in stored else None
    names = shown_names(stored.fetch(CLASS_NAMES)) if CLASS_NAMES in stored else None
    if known is None:
        return named_labels(labels, num_vertices, num_classes, multilabel, names)
    if labels is None or (labels.ndim and not labelled(labels).any()):
        return named_labels(None, num_vertices, *known[1:], targets=known.array.shape[1:])
    if known.num_classes is not None:
        if names is not None and known.class_names is not None:
            if labels.ndim == 1:
                labels = checked_labels(labels, num_vertices, len(names)).array
                labels = renumbered(labels, names, known.class_names)
            elif labels.shape[1:] == names.shape:
                columns = renumbered(np.arange(len(names)), names, known.class_names)
                given, labels = labels, np.zeros((len(labels), known.num_classes), labels.dtype)
                labels[:, columns] = given
        num_classes, names, multilabel = known.num_classes, known.class_names, multilabel or known.multilabel
    return named_labels(labels, num_vertices, num_classes, multilabel, names)


def labelled(labels: np.ndarray) -> Bool[np.ndarray, " V"]:
    """The vertices that have a label, bool `[V]`: of classes all but -1, of floating labels all, or none if all are NaN."""
    if labels.ndim == 1 and labels.dtype.kind in "iu":
        return labels >= 0
    return np.full(len(labels), not _is_blank(labels))


def _is_blank(labels: np.ndarray) -> bool:
    """Whether floating labels are NaN everywhere."""
    return labels.dtype.kind == "f" and labels.size > 0 and bool(np.isnan(labels.flat[0]) and np.isnan(labels).all())


def checked_num_classes(value: Any) -> int:
    """C, a whole number ≥ 1 that labels of int32 can count to; a GraphError for anything else."""
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
    if largest < 0 and len(array) and given is None:
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
    remedy = "give any number and leave the vertex out of all masks (of classes: -1, and num_classes)"
    held = array.astype(np.float32) if _is_blank(array) else as_held("labels", array, np.float32, remedy)
    return Labels(held, None, multilabel=False)


def _is_binary(array: np.ndarray) -> bool:
    return all(np.isin(array[start:stop], (0, 1)).all() for start, stop in row_spans(array))


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
    if not _is_blank(array):
        check_binary("labels", array)
        if multilabel is None and num_classes > 1:
            _check_not_one_hot(array)
    return Labels(array.astype(np.float32, copy=False), num_classes, multilabel=True)


def _check_not_one_hot(array: np.ndarray) -> None:
    """One class each, written as rows of zeros and ones, would be trained with another loss than its writer expects."""
    ones = 0
    for start, stop in row_spans(array):
        counts = np.count_nonzero(array[start:stop], axis=1)
        if (counts > 1).any():
            return
        ones += int(counts.sum())
    if ones:
        every = ones == len(array)
        remedy = "labels.argmax(axis=1)" if every else "np.where(labels.any(axis=1), labels.argmax(axis=1), -1)"
        rows = "exactly one 1 in every row" if every else "no row with more than one 1"
        raise GraphError(f"labels [V, C] has {rows}: give classes, {remedy}, or say multilabel=True")


def as_mask(name: str, value: Any, num_vertices: int) -> Bool[np.ndarray, " V"]:
    """A set of vertices as bool `[V]`, from bool `[V]` or `[V, 1]`, zeros and ones `[V]`, or vertex numbers `[N]`.

    Integers are either a mask (V of them, each 0 or 1) or vertices (distinct, each in 0 … V-1). From three vertices on
    no array is both; of one or two, those that are both are refused with a GraphError, as is an array that is neither.
    """
    array = as_array(name, value)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim == 2:
        raise GraphError(f"{name} has shape {list(array.shape)}, one column per split: choose one, as {name}[:, 0]")
    if array.size == 0 and array.ndim == 1 and array.dtype != bool:
        return np.zeros(num_vertices, bool)
    if array.dtype.kind not in "iub" or array.ndim != 1:
        raise GraphError(
            f"{name} must be bool [V] or vertex numbers, got {array.dtype} {list(array.shape)}"
            + (f": {name}.astype(bool) if it is zeros and ones" if array.dtype.kind == "f" else "")
        )
    if array.dtype == bool:
        check_length(name, array, num_vertices, "one per vertex")
        return array
    return _of_integers(name, array, num_vertices)


def checked_masks(given: Mapping[str, Any], labels: np.ndarray) -> dict[str, np.ndarray]:
    """The three masks of a data set, disjoint, each of labelled vertices, the first not empty if any vertex has a label.

    Masks are given by the names of `MASKS`, as `as_mask` takes them, or as None. Without any, all labelled vertices
    train; otherwise the training mask is needed, and one that is missing is empty. Raises a GraphError.
    """
    num_vertices, known = len(labels), labelled(labels)
    masks = {
        name: np.zeros(num_vertices, bool) if value is None else as_mask(name, value, num_vertices)
        for name, value in given.items()
    }
    if given["train_mask"] is None:
        beside = [name for name in MASKS if given[name] is not None]
        if beside:
            rest = f"~({' | '.join(beside)})" if len(beside) > 1 else f"~{beside[0]}"
            raise GraphError(f"train_mask is not given beside {' and '.join(beside)}: give it too, for example {rest}")
        masks["train_mask"] = known
    for (name, mask), (other_name, other) in itertools.combinations(masks.items(), 2):
        both = np.flatnonzero(mask & other)
        if both.size:
            raise GraphError(
                f"{name} and {other_name} overlap: {name}[{both[0]}] = {other_name}[{both[0]}] = True "
                f"({both.size} such vertices)"
            )
    for name, mask in masks.items():
        wrong = np.flatnonzero(mask & ~known)
        if wrong.size:
            raise GraphError(
                f"{name} holds vertex {wrong[0]}, but labels[{wrong[0]}] = {labels[wrong[0]]} says that it is unlabelled "
                f"({wrong.size} such vertices): {name} & (labels >= 0)"
            )
    if not masks["train_mask"].any() and (known.any() or not num_vertices):
        raise GraphError("train_mask holds no vertex: at least one is needed to train")
    return masks


def _of_integers(name: str, array: np.ndarray, num_vertices: int) -> np.ndarray:
    mask = np.zeros(num_vertices, bool)
    inside = (array >= 0) & (array < num_vertices)
    mask[array[inside]] = True
    distinct = bool(inside.all()) and int(np.count_nonzero(mask)) == len(array)
    truths = len(array) == num_vertices and bool(((array == 0) | (array == 1)).all())
    if distinct and truths:
        raise GraphError(f"{name} = {array.tolist()} may be a mask or a list of vertices: give truth values")
    if truths:
        return array.astype(bool)
    if distinct:
        return mask
    neither = f"{name} is neither a mask ({num_vertices} zeros and ones) nor a list of vertices"
    if not inside.all():
        k = int(np.flatnonzero(~inside)[0])
        raise GraphError(f"{neither}: {name}[{k}] = {array[k]} is not in 0 … {num_vertices - 1}")
    _, first = np.unique(array, return_index=True)
    k = int(np.setdiff1d(np.arange(len(array)), first)[0])
    raise GraphError(f"{neither}: {name}[{k}] = {array[k]} is repeated, give each vertex once")
