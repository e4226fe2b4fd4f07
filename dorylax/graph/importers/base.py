"""What importers share: nothing that the other library knows of edges or vertices is dropped without a word.

An importer reads an object of another library, which this package does not import, into `Imported`: the graph with what the
edges have as `edge_data`, and apart from it what vertices have, which a `Graph` cannot hold. `graph_alone` makes of that the
result of a `Graph.from_…`: it refuses by name what would be lost, but for what the caller said to ignore.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Hashable, Iterable
from typing import Any, Generic, final

import numpy as np

from dorylax.graph.arrays import as_array
from dorylax.graph.compressed import AnyGraph
from dorylax.graph.validate import GraphError


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Imported(Generic[AnyGraph]):
    """An object of another library.

    Attributes:
        graph: with the edges' values as its `edge_data`.
        vertex_data: what vertices have by name, as it was: tensors, lists, dicts. A `Dataset`'s.
        other: what belongs neither to edges nor to vertices, by name.
        names: Names of the vertices `[V]`, integers or text; None where their numbers are their names.
    """

    graph: AnyGraph
    vertex_data: dict[str, Any]
    other: dict[str, Any]
    names: np.ndarray | None = None


def graph_alone(imported: Imported[AnyGraph], ignore: Collection[str], what: str) -> AnyGraph:
    """The graph, where nothing but what is to be ignored is left over.

    Args:
        imported: what was read.
        ignore: names that the caller knows to be left out.
        what: what vertex data are called there, such as "node attribute".

    Raises:
        GraphError: something else would be lost.
    """
    for name in imported.vertex_data:
        if name not in ignore:
            raise GraphError(
                f"{what} {name!r} has a value per vertex, and a Graph holds none: give it to a Dataset (features, labels, "
                f"masks, vertex_inputs), and leave it out here with ignore=[{name!r}]"
            )
    refuse_other(imported.other, ignore)
    return imported.graph


def refuse_other(other: Collection[str], ignore: Collection[Hashable]) -> None:
    """Raises a `GraphError` where something of the whole graph would be lost."""
    for name in other:
        if name not in ignore:
            raise GraphError(
                f"{name!r} has neither a value per edge nor per vertex, and a Graph holds no such thing: leave it out with "
                f"ignore=[{name!r}]"
            )


def numbers(name: str, values: Any, remedy: str) -> np.ndarray:
    """Values as real numbers or truth values.

    Raises:
        GraphError: they are something else; the message ends with the remedy.
    """
    try:
        return as_array(name, values)
    except GraphError as error:
        raise GraphError(f"{error}, or {remedy}") from error


def collection(name: str, values: Collection[Hashable]) -> Collection[Hashable]:
    """A collection of names, and not one name, whose letters would be taken for names.

    Raises:
        GraphError: it is one text.
    """
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise GraphError(f"{name} must be a list of names, got {values!r}")
    return values
