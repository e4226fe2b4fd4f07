"""Shared code of the importers, none of which drops values of edges or vertices silently.

An importer reads an object of another library, which this package does not import, into `Imported`: the graph with the
edges' values as `edge_data`, and the vertices' values, which a `Graph` cannot hold. `graph_alone` returns the graph for
`Graph.from_…`. It refuses by name any value that would be lost and that the caller did not ask to ignore.
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
        graph: The graph, with the edges' values as its `edge_data`.
        vertex_data: The vertices' values by name, in their original form (tensors, lists, dicts), for a `Dataset`.
        other: Values of neither edges nor vertices, by name.
        names: Names of the vertices `[V]`, integers or text; None if their numbers are their names.
    """

    graph: AnyGraph
    vertex_data: dict[str, Any]
    other: dict[str, Any]
    names: np.ndarray | None = None


def graph_alone(imported: Imported[AnyGraph], ignore: Collection[str], what: str) -> AnyGraph:
    """The graph of an imported object that has no other values.

    Args:
        imported: The object.
        ignore: Names of values to leave out.
        what: The library's word for a value of vertices, such as "node attribute".

    Raises:
        GraphError: A value would be lost.
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
    """Raises a `GraphError` if a value of the whole graph would be lost."""
    for name in other:
        if name not in ignore:
            raise GraphError(
                f"{name!r} has neither a value per edge nor per vertex, and a Graph holds no such thing: leave it out with "
                f"ignore=[{name!r}]"
            )


def numbers(name: str, values: Any, remedy: str) -> np.ndarray:
    """Values as real numbers or truth values.

    Raises:
        GraphError: They are neither; the message ends with the remedy.
    """
    try:
        return as_array(name, values)
    except GraphError as error:
        raise GraphError(f"{error}, or {remedy}") from error


def collection(name: str, values: Collection[Hashable]) -> Collection[Hashable]:
    """A collection of names; a single text would pass as one of letters.

    Raises:
        GraphError: It is a single text or not a collection.
    """
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise GraphError(f"{name} must be a list of names, got {values!r}")
    return values
