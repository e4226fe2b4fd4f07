"""From an object of another library to the arguments of `Dataset`: features, labels, masks, and further inputs.

Every value of the vertices gets a role, becomes a further input, or raises an error with its name.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import Any

import numpy as np

from dorylax.graph.array_names import MASKS
from dorylax.graph.arrays import as_array
from dorylax.graph.compressed import AnyGraph
from dorylax.graph.importers.base import Imported, refuse_other
from dorylax.graph.inputs import checked_inputs
from dorylax.graph.labels import labelled, named_labels
from dorylax.graph.splits import default_split, one_split
from dorylax.graph.validate import GraphError


def by_role(  # noqa: PLR0917  (the arguments of each `Dataset.from_…`)
    name: str,
    imported: Imported[AnyGraph],
    ignore: Collection[Hashable],
    features: Any,
    labels: Any,
    num_classes: int | None,
    multilabel: bool | None,
    split: int | None,
    split_seed: int,
) -> dict[str, Any]:
    """The arguments of `Dataset` for an imported object.

    Values named `train_mask`, `val_mask` and `test_mask` are its masks. Without them the labelled vertices are split, and
    the log says so.

    Args:
        name: Name of the data set.
        imported: The graph and the values of its vertices.
        ignore: Names of values to leave out.
        features: Name of a value per vertex, a list of names (columns side by side), or an array; None for all values other
            than labels and masks.
        labels: Name of a value per vertex, a list of names, or an array; None for no labels.
        num_classes: As for `Dataset`.
        multilabel: As for `Dataset`.
        split: Which of K splits, where masks hold several.
        split_seed: Seed of the split of data without masks.

    Raises:
        GraphError: A name is unknown, or a value belongs to no vertex or cannot be a further input.
    """
    refuse_other(imported.other, ignore)
    size = imported.graph.num_vertices
    there = {key: _of_all(key, value, size) for key, value in imported.vertex_data.items() if key not in ignore}
    masks = one_split({key: there[key] for key in MASKS if key in there}, size, split)
    if features is None:
        features = [key for key in there if key not in (*masks, *names_in(labels))] or None
    used = {*masks, *names_in(features), *names_in(labels)}
    found = named_labels(_taken("labels", labels, there), size, num_classes, multilabel)
    if found.multilabel and len(names_in(labels)) == found.num_classes:
        found = found._replace(class_names=np.array(names_in(labels)))
    if not masks and labelled(found.array).any():
        masks = default_split(name, found.array, split_seed)._asdict()
    return {
        "name": name,
        "graph": imported.graph,
        "features": _taken("features", features, there),
        "labels": found.array,
        **{key: value for key, value in found._asdict().items() if key != "array"},
        **masks,
        "vertex_inputs": {key: _further(key, value, size) for key, value in there.items() if key not in used},
        "original_ids": imported.names,
    }


def names_in(given: Any) -> list[str]:
    """Names in the argument for a role; none if it is an array."""
    if isinstance(given, str):
        return [given]
    return list(given) if isinstance(given, (list, tuple)) and given and isinstance(given[0], str) else []


def _taken(role: str, given: Any, there: Mapping[str, Any]) -> Any:
    names = names_in(given)
    if not names:
        return given
    for name in names:
        if name not in there:
            listed = ", ".join(map(repr, sorted(there))) or "none"
            other = "; labels=None stands for none" if role == "labels" else ""
            raise GraphError(
                f"{role}={given!r}: vertices have no value {name!r}, but {listed}; an array will do, too{other}"
            )
    if role == "labels" and len(names) == 1:
        return there[names[0]]
    remedy = "encode it as numbers, or leave it out with ignore=[{!r}]"
    arrays = [as_array(f"{role} {name!r}", there[name], remedy.format(name)) for name in names]
    columns = [array[:, None] if array.ndim == 1 else array for array in arrays]
    return columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)


def _of_all(name: str, values: Any, num_vertices: int) -> Any:
    """Values as one array or list, also from the dict by vertex of a networkx graph."""
    if not isinstance(values, dict):
        return values
    without = next((vertex for vertex in range(num_vertices) if vertex not in values), None)
    if without is not None:
        raise GraphError(
            f"vertex {without} has no {name!r}, which other vertices have: give it one, or leave it out with "
            f"ignore=[{name!r}]"
        )
    return [values[vertex] for vertex in range(num_vertices)]


def _further(name: str, value: Any, num_vertices: int) -> np.ndarray:
    try:
        return checked_inputs("vertex_inputs", {name: value}, num_vertices, "one row per vertex")[name]
    except GraphError as error:
        raise GraphError(f"{error}; or leave it out with ignore=[{name!r}]") from error
