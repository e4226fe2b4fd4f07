"""Masks of vertices, from truth values, zeros and ones, or vertex numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool

from dorylax.graph.array_names import MASKS
from dorylax.graph.arrays import as_array
from dorylax.graph.labels import labelled
from dorylax.graph.validate import GraphError, check_disjoint, check_length


def as_mask(name: str, value: Any, num_vertices: int) -> Bool[np.ndarray, " V"]:
    """A set of vertices as bool `[V]`.

    Integers are either a mask (V of them, each 0 or 1) or vertices (distinct, each in 0 … V-1). From three vertices on no
    array is both; of one or two, those that are both are refused.

    Args:
        name: Name in messages.
        value: bool `[V]` or `[V, 1]`, zeros and ones `[V]`, or vertex numbers `[N]`, in any form that `as_array` takes.
        num_vertices: V.

    Raises:
        GraphError: It is neither, or could be both.
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

    Masks are given by the names of `MASKS`, as `as_mask` takes them, or as None. Without any, all labelled vertices train;
    otherwise the training mask is needed, and one that is missing is empty.

    Raises:
        GraphError: A mask is wrong, two overlap, one holds an unlabelled vertex, or none trains.
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
    check_disjoint(masks)
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
