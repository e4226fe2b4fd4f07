"""What the transformations of a graph mean, edge by edge in plain Python, and chains of them to draw."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from dorylax.graph.graph import Graph

Edge = tuple[int, int, int, float]
"""Id, source, target, value."""


@dataclasses.dataclass(frozen=True)
class EdgeList:
    """Edges in ascending order of ids, of which 0 … num_ids - 1 were given out."""

    num_vertices: int
    num_ids: int
    edges: list[Edge]

    def changed(self, name: str, argument: Any = None) -> EdgeList:
        """After the transformation of that name."""
        if name == "reorder":
            return self
        return getattr(self, f"_{name}")(argument)

    def _coalesce(self, values: str) -> EdgeList:
        kept: dict[tuple[int, int], Edge] = {}
        for number, u, v, value in self.edges:
            if (u, v) not in kept:
                kept[u, v] = (number, u, v, value)
            elif values == "sum":
                first = kept[u, v]
                kept[u, v] = (*first[:3], first[3] + value)
        return dataclasses.replace(self, edges=sorted(kept.values()))

    def _with_self_loops(self, value: float) -> EdgeList:
        looped = {u for _, u, v, _ in self.edges if u == v}
        lacking = [v for v in range(self.num_vertices) if v not in looped]
        if not lacking:
            return self
        loops = [(self.num_ids + v, v, v, value) for v in lacking]
        return EdgeList(self.num_vertices, self.num_ids + self.num_vertices, self.edges + loops)

    def _without_self_loops(self, _: Any) -> EdgeList:
        return dataclasses.replace(self, edges=[edge for edge in self.edges if edge[1] != edge[2]])

    def _symmetrise(self, _: Any) -> EdgeList:
        pairs = [(u, v) for _, u, v, _ in self.edges]
        if sorted(pairs) == sorted((v, u) for u, v in pairs):
            return self._coalesce("first")
        once = self._coalesce("first")
        there = {(u, v) for u, v in pairs}
        reverse = [(self.num_ids + k, v, u, value) for k, u, v, value in once.edges if (v, u) not in there]
        return EdgeList(self.num_vertices, 2 * self.num_ids, once.edges + reverse)

    @property
    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Source and target of each edge, `[E]`."""
        found = np.array([(u, v) for _, u, v, _ in self.edges], np.int64).reshape(-1, 2)
        return found[:, 0], found[:, 1]


def listed(graph: Graph) -> list[Edge]:
    """The edges of a graph in order of per-edge arrays, by the vertices' own ids; its values are `edge_data["w"]`."""
    vertex_ids = np.arange(graph.num_vertices) if graph.vertex_ids is None else graph.vertex_ids
    targets = vertex_ids[np.repeat(np.arange(graph.num_vertices), np.diff(graph.incoming.offsets))]
    sources = vertex_ids[graph.incoming.neighbours]
    places = np.arange(graph.num_edges) if graph.edge_order is None else graph.edge_order
    ids = np.arange(graph.num_edges) if graph.edge_ids is None else graph.edge_ids
    slots = np.argsort(places)
    np.testing.assert_array_equal(places[slots], np.arange(graph.num_edges))
    values = graph.edge_data["w"]
    return list(zip(ids.tolist(), sources[slots].tolist(), targets[slots].tolist(), values.tolist(), strict=True))


def apply(graph: Graph, name: str, argument: Any) -> Graph:
    """The transformation of that name."""
    if name == "with_self_loops":
        return graph.with_self_loops({"w": argument})
    return getattr(graph, name)() if argument is None else getattr(graph, name)(argument)


def steps(num_vertices: int) -> st.SearchStrategy[tuple[str, Any]]:
    """A transformation of a graph of so many vertices."""
    return st.one_of(
        st.tuples(st.just("reorder"), st.permutations(range(num_vertices))),
        st.tuples(st.just("coalesce"), st.sampled_from(["first", "sum"])),
        st.tuples(st.just("with_self_loops"), st.integers(-3, 3).map(float)),
        st.sampled_from([("without_self_loops", None), ("symmetrise", None)]),
    )


@st.composite
def chains(draw: st.DrawFn, max_edges: int = 16) -> tuple[EdgeList, list[tuple[str, Any]]]:
    """A multigraph in any order, and transformations to apply one after the other."""
    return draw(_chains_of(draw(st.integers(1, 6)), max_edges))


def sized_chains(*sizes: tuple[int, int]) -> st.SearchStrategy[tuple[EdgeList, list[tuple[str, Any]]]]:
    """Chains after which a graph has one of these numbers of vertices and edges.

    For what JAX runs: it compiles every operation anew for arrays of other shapes.
    """
    return st.sampled_from(sizes).flatmap(
        lambda size: _chains_of(size[0], 2 * size[1], min_edges=size[1] // 2).filter(_ends_with(size[1]))
    )


def _ends_with(num_edges: int) -> Callable[[tuple[EdgeList, list[tuple[str, Any]]]], bool]:
    def fits(case: tuple[EdgeList, list[tuple[str, Any]]]) -> bool:
        edges, chain = case
        return len(functools.reduce(lambda edges, step: edges.changed(*step), chain, edges).edges) == num_edges

    return fits


@st.composite
def _chains_of(draw: st.DrawFn, v: int, max_edges: int, min_edges: int = 0) -> tuple[EdgeList, list[tuple[str, Any]]]:
    ends = st.tuples(st.integers(0, v - 1), st.integers(0, v - 1))
    pairs = draw(st.lists(ends, min_size=min_edges, max_size=max_edges))
    edges = [(k, s, t, float(10 * k + 1)) for k, (s, t) in enumerate(pairs)]
    return EdgeList(v, len(edges), edges), draw(st.lists(steps(v), max_size=4))
