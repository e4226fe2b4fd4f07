"""From an object of another library to the arguments of `Dataset`: what its vertices' values are.

They are features, labels, masks or further inputs. Nothing is dropped: what has no role becomes a further input, or is
refused by name.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import Any

import numpy as np

from dorylax.graph.arrays import as_array
from dorylax.graph.compressed import AnyGraph
from dorylax.graph.importers.base import Imported, refuse_other
from dorylax.graph.inputs import checked_inputs
from dorylax.graph.npz import MASKS
from dorylax.graph.splits import public_split
from dorylax.graph.validate import GraphError


def by_role(
    imported: Imported[AnyGraph], ignore: Collection[Hashable], *, features: Any, labels: Any, split: int | None
) -> dict[str, Any]:
    """What was read, as arguments of `Dataset`. Values called `train_mask`, `val_mask` and `test_mask` are its masks.

    Args:
        imported: the graph, and the values that are left when those to be ignored are gone.
        ignore: names that were left out.
        features: the name of a value per vertex, a list of names (columns side by side), or an array.
        labels: likewise.
        split: which column of masks `[V, K]`, 0 … K-1.

    Raises:
        GraphError: an unknown name; a value that cannot be a further input, or belongs to no vertex.
    """
    refuse_other(imported.other, ignore)
    size = imported.graph.num_vertices
    there = {key: _of_all(key, value, size) for key, value in imported.vertex_data.items() if key not in ignore}
    taken = {"features": _taken("features", features, there), "labels": _taken("labels", labels, there)}
    masks = {key: there[key] for key in MASKS if key in there}
    used = {*masks, *_names(features), *_names(labels)}
    return {
        "graph": imported.graph,
        **taken,
        **_one_split(masks, split),
        "vertex_inputs": {key: _further(key, value, size) for key, value in there.items() if key not in used},
    }


def _names(given: Any) -> list[str]:
    """The names that a role is given by; none where it is given as an array."""
    if isinstance(given, str):
        return [given]
    return list(given) if isinstance(given, (list, tuple)) and given and isinstance(given[0], str) else []


def _taken(role: str, given: Any, there: Mapping[str, Any]) -> Any:
    names = _names(given)
    if not names:
        return given
    for name in names:
        if name not in there:
            listed = ", ".join(map(repr, sorted(there))) or "none"
            raise GraphError(f"{role}={given!r}: vertices have no value {name!r}, but {listed}; an array will do, too")
    if role == "labels" and len(names) == 1:
        return there[names[0]]
    arrays = [as_array(f"{role} {name!r}", there[name]) for name in names]
    columns = [array[:, None] if array.ndim == 1 else array for array in arrays]
    return columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)


def _of_all(name: str, values: Any, num_vertices: int) -> Any:
    """Values as one array or list; networkx has them vertex by vertex."""
    if not isinstance(values, dict):
        return values
    without = next((vertex for vertex in range(num_vertices) if vertex not in values), None)
    if without is not None:
        raise GraphError(
            f"vertex {without} has no {name!r}, which other vertices have: give it one, or leave it out with "
            f"ignore=[{name!r}]"
        )
    return [values[vertex] for vertex in range(num_vertices)]


def _one_split(masks: Mapping[str, Any], split: int | None) -> dict[str, Any]:
    given = {name: as_array(name, mask) for name, mask in masks.items()}
    several = [name for name, mask in given.items() if mask.ndim == 2 and mask.shape[1] > 1]
    if not several:
        return given
    if split is None:
        count = given[several[0]].shape[1]
        raise GraphError(f"{several[0]} has a column for each of {count} splits: say which, split=0 … {count - 1}")
    size = len(given[several[0]])
    every = {name: given.get(name, np.zeros(size, bool)) for name in MASKS}
    return {name: mask for name, mask in public_split(**every, column=split)._asdict().items() if name in given}


def _further(name: str, value: Any, num_vertices: int) -> np.ndarray:
    try:
        return checked_inputs("vertex_inputs", {name: value}, num_vertices, "one row per vertex")[name]
    except GraphError as error:
        raise GraphError(f"{error}; or leave it out with ignore=[{name!r}]") from error
