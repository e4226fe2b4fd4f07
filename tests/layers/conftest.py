"""Graphs for the tests of layers, made by hand so that only the data contract is needed; and PyG, where it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from flax import nnx

from dorylax.graph.graph import Graph
from dorylax.graph.rows import BySlot

MakeGraph = Callable[..., Graph]


def _make_graph(sources: Any, targets: Any, num_vertices: int, **options: Any) -> Graph:
    """A graph from edges in any order; values per edge are in order of (target, source), or as `places` says."""
    sources, targets = np.asarray(sources, np.int32), np.asarray(targets, np.int32)
    order = np.lexsort((sources, targets))
    sources, targets = sources[order], targets[order]
    offsets = np.zeros(num_vertices + 1, np.int64)
    np.cumsum(np.bincount(targets, minlength=num_vertices), out=offsets[1:])
    loops = np.unique(sources[sources == targets]).size
    kind = "none" if loops == 0 else "all" if loops == num_vertices else "some"
    if (places := options.pop("places", None)) is not None:
        options["placed"] = BySlot(np.asarray(places, np.int32)[order])
    return Graph(offsets, sources, self_loops=kind, **options)


@pytest.fixture(scope="session")
def make_graph() -> MakeGraph:
    return _make_graph


@pytest.fixture(scope="session")
def edges() -> Callable[[Graph], np.ndarray]:
    """The edges of a graph in order of their ids, int64 `[2, E]`: sources, targets."""

    def of(graph: Graph) -> np.ndarray:
        targets = np.repeat(np.arange(graph.num_vertices), np.diff(graph.incoming.offsets))
        return np.stack([graph.incoming.neighbours.astype(np.int64), targets])

    return of


@pytest.fixture(scope="session")
def messy_graph() -> Graph:
    """Directed, 12 vertices, duplicate edges, loops at 3 and 5; 0 and 7 isolated, 1 has no in-edge, 2 no out-edge."""
    rng = np.random.default_rng(0)
    sources = rng.choice([1, 3, 4, 5, 6, 8, 9, 10, 11], 40)
    targets = rng.choice([2, 3, 4, 5, 6, 8, 9, 10, 11], 40)
    keep = sources != targets
    sources, targets = sources[keep], targets[keep]
    given = _make_graph([*sources, *sources[:3], 3, 5], [*targets, *targets[:3], 3, 5], 12)
    # With ids and places, so that its permutations run the programs that were compiled for it.
    places = BySlot(np.arange(given.num_edges, dtype=np.int32))
    options = {"self_loops": given.self_loops, "vertex_ids": np.arange(12, dtype=np.int32), "placed": places}
    return Graph(given.incoming.offsets, given.incoming.neighbours, **options)


@pytest.fixture(scope="session")
def permute(edges: Callable[[Graph], np.ndarray]) -> Callable[[Graph, np.ndarray], Graph]:
    """The same graph with vertex `order[r]` in row r, with the ids of its vertices and the places of its edges."""

    def permuted(graph: Graph, order: np.ndarray) -> Graph:
        rank = np.argsort(order)
        sources, targets = rank[edges(graph)]
        ids = {"vertex_ids": order.astype(np.int32), "places": np.arange(graph.num_edges)}
        return _make_graph(sources, targets, graph.num_vertices, **ids)

    return permuted


@nnx.jit
def _run(layer: Any, graph: Graph, *arrays: jax.Array) -> jax.Array:
    return layer(graph, *arrays)


@pytest.fixture(scope="session")
def run() -> Callable[..., jax.Array]:
    """`run(layer, graph, x)` is `layer(graph, x)`, compiled as one program: an eager call compiles every operation."""
    return _run


@pytest.fixture
def x64() -> Iterator[None]:
    """Double precision during the test."""
    with jax.enable_x64(True):
        yield


class Peers(NamedTuple):
    """What parity tests need of PyG: torch, `torch_geometric.nn`, and messy_graph's edges by edge id."""

    torch: Any
    nn: Any
    edge_index: Any


@pytest.fixture(scope="session")
def peers(messy_graph: Graph, edges: Callable[[Graph], np.ndarray]) -> Peers:
    torch = pytest.importorskip("torch", reason="parity with PyG needs torch, which the extra [bench] installs")
    reason = "parity with PyG needs torch-geometric, which the extra [bench] installs"
    pytest.importorskip("torch_geometric", reason=reason)
    return Peers(torch, pytest.importorskip("torch_geometric.nn", reason=reason), torch.tensor(edges(messy_graph)))
