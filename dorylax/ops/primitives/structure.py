"""The graph as primitives take it: five arrays with rows in both directions."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax.numpy as jnp

from dorylax.graph.compressed import CompressedGraph, as_words

Direction = Literal["in", "out"]


class Structure(NamedTuple):
    """The graph as primitives take it: rows by destination, then rows by source with each entry's slot.

    An edge's slot is its position in the rows by destination, which is the order of per-edge operands and results. Operators
    convert from and to the user's order (`dorylax.ops.scatter`).
    """

    in_offsets: Any  # uint32 [V+1, 2]
    in_neighbours: Any  # int32 [E]
    out_offsets: Any  # uint32 [V+1, 2]
    out_neighbours: Any  # int32 [E]
    out_edges: Any  # int32 [E]


class DirectedRows(NamedTuple):
    """One direction of a structure."""

    offsets: Any  # uint32 [R+1, 2]
    neighbours: Any  # int32 [E]
    edges: Any | None  # int32 [E], or None if entry k is edge k


def structure_of(graph: CompressedGraph, *, edge_ids: bool = True) -> Structure:
    """Return the arrays of a graph, for `bind`.

    Args:
        graph: The graph.
        edge_ids: Whether the operator counts edges, as all do except those that only sum or compare over vertices.

    Raises:
        GraphError: Edges are counted, and the graph lacks edge ids.
    """
    into, out = graph.incoming, graph.outgoing
    edges = out.edges
    if edge_ids:
        graph.require_edge_ids()
    if not graph.edge_ids_fit:
        edges = jnp.zeros((0,), jnp.int32)
    return Structure(as_words(into.offsets), into.neighbours, as_words(out.offsets), out.neighbours, edges)


def rows_of(structure: Structure, direction: Direction) -> DirectedRows:
    """Return the rows that an operator of this direction computes."""
    if direction == "in":
        return DirectedRows(structure.in_offsets, structure.in_neighbours, None)
    return DirectedRows(structure.out_offsets, structure.out_neighbours, structure.out_edges)


def flip(direction: Direction) -> Direction:
    """Return the other direction."""
    return "out" if direction == "in" else "in"


def num_rows(structure: Structure, direction: Direction) -> Any:
    """Return R, which may be a symbolic dimension."""
    return rows_of(structure, direction).offsets.shape[0] - 1
