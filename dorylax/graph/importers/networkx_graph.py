"""networkx graphs, with the attributes of their edges."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import Any

import numpy as np

from dorylax.graph.build import from_pairs
from dorylax.graph.compressed import AnyGraph
from dorylax.graph.importers.base import Imported, collection, numbers
from dorylax.graph.names import stored_names
from dorylax.graph.validate import GraphError


def read(
    kind: type[AnyGraph], graph: Any, nodes: Sequence[Hashable] | None, *, ignore: Collection[str]
) -> Imported[AnyGraph]:
    """Reads a networkx graph into one of class `kind`. The other arguments are those of `Graph.from_networkx`.

    Also returns the nodes' attributes, as dicts from vertex to value, and the nodes as names.
    """
    collection("ignore", ignore)
    nodes = _nodes(graph, nodes)
    number = {node: i for i, node in enumerate(nodes)}
    if len(number) != len(nodes) or number.keys() != set(graph):
        raise GraphError(
            f"nodes must list each of the graph's {len(graph)} nodes once: "
            f"got {len(nodes)}, of which {len(number)} distinct and {len(number.keys() & set(graph))} in the graph"
        )
    edges = list(graph.edges(data=True))
    pairs = np.array([(number[u], number[v]) for u, v, _ in edges], np.int32).reshape(-1, 2)
    data = _attributes(edges, ignore)
    sources, targets, ids = pairs[:, 0], pairs[:, 1], None
    if not graph.is_directed():
        back = np.flatnonzero(sources != targets)
        sources, targets = np.concatenate([sources, targets[back]]), np.concatenate([targets, pairs[back, 0]])
        data = {name: np.concatenate([values, values[back]]) for name, values in data.items()}
        ids = None if len(back) == len(edges) else np.concatenate([np.arange(len(edges)), len(edges) + back])
    built = from_pairs(kind, sources, targets, ("sources", "targets"), len(nodes), edge_data=data, ids=ids)
    of_nodes: dict[str, Any] = {}
    for node, attributes in graph.nodes(data=True):
        for name, value in attributes.items():
            of_nodes.setdefault(name, {})[number[node]] = value
    return Imported(built, of_nodes, {}, None if isinstance(nodes, range) else stored_names("nodes", list(nodes)))


def _nodes(graph: Any, nodes: Sequence[Hashable] | None) -> Sequence[Hashable]:
    if nodes is not None:
        return nodes
    found = list(graph)
    numbered = set(found) == set(range(len(found)))  # by value: NumPy integers too
    return range(len(found)) if numbered else found


def _attributes(edges: list[tuple[Any, Any, dict[str, Any]]], ignore: Collection[str]) -> dict[str, np.ndarray]:
    names = dict.fromkeys(name for _, _, attributes in edges for name in attributes if name not in ignore)
    found = {}
    for name in names:
        without = next(((u, v) for u, v, attributes in edges if name not in attributes), None)
        remedy = f"leave it out with ignore=[{name!r}]"
        if without is not None:
            raise GraphError(
                f"edge {without[0]!r} – {without[1]!r} has no attribute {name!r}, which other edges have: give it one, or "
                f"{remedy}"
            )
        values = [attributes[name] for _, _, attributes in edges]
        found[name] = numbers(f"edge attribute {name!r}", values, remedy)
    return found
