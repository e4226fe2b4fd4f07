"""Small graphs that hold everything kernels get wrong, and ways to switch dtypes and instruction sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import jax
import numpy as np
import pytest

from dorylax.graph.graph import Graph
from dorylax.ops import native


def random_graph(seed: int, num_vertices: int = 37, num_edges: int = 300, hub: int = 0) -> Graph:
    """Directed, with parallel edges and self-loops; the last vertices have no edges; vertex 3 gets `hub` more in-edges
    and vertex 5 as many out-edges.
    """
    rng = np.random.default_rng(seed)
    live = num_vertices - 4
    sources, targets = rng.integers(0, live, (2, num_edges))
    sources[:10] = targets[:10]
    sources = np.concatenate([sources, rng.integers(0, live, hub), np.full(hub, 5)])
    targets = np.concatenate([targets, np.full(hub, 3), rng.integers(0, live, hub)])
    return Graph.from_coo(sources, targets, num_vertices)


GRAPHS = {
    "random": random_graph(0),
    # More entries in a row than one span of the kernel's schedule (kernel/schedule.cc), and not a multiple of it.
    "hub": random_graph(1, 12, 100, hub=70_001),
    "no edges": Graph.from_coo(np.zeros(0, np.int64), np.zeros(0, np.int64), 5),
    "one vertex": Graph.from_coo(np.zeros(2, np.int64), np.zeros(2, np.int64), 1),
    "symmetric": Graph.from_coo(np.array([0, 1, 1, 2, 4, 0]), np.array([1, 0, 2, 1, 0, 4]), 5),
}


@pytest.fixture(params=list(GRAPHS))
def graph(request: pytest.FixtureRequest) -> Graph:
    """Each of the graphs."""
    return GRAPHS[request.param]


@pytest.fixture
def small() -> Graph:
    """One graph with empty rows, loops and parallel edges, small enough for numerical derivatives."""
    return random_graph(2, 9, 16)


def _ends(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    targets = np.repeat(np.arange(graph.num_vertices), np.diff(graph.incoming.offsets))
    slots = np.argsort(graph.edge_order) if graph.edge_ids_fit and graph.edge_order is not None else slice(None)
    return np.asarray(graph.incoming.neighbours)[slots], targets[slots]


@pytest.fixture
def ends() -> Callable[[Graph], tuple[np.ndarray, np.ndarray]]:
    """Source and target of each edge, in order of edge ids."""
    return _ends


@pytest.fixture
def dense() -> Callable[..., np.ndarray]:
    """The float64 matrix `[V, V]` with the (weighted) number of edges u → v at [v, u]."""

    def matrix(graph: Graph, weight: np.ndarray | None = None) -> np.ndarray:
        sources, targets = _ends(graph)
        a = np.zeros((graph.num_vertices,) * 2)
        np.add.at(a, (targets, sources), 1.0 if weight is None else np.asarray(weight, np.float64))
        return a

    return matrix


@pytest.fixture
def x64() -> Iterator[None]:
    """float64 inside JAX for one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(params=["avx512", "avx2", "baseline"])
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each instruction set that this processor has; the best is restored afterwards."""
    if not native.status().available:
        pytest.skip(f"no native kernels: {native.status().reason}")
    try:
        native.choose_instruction_set(request.param)
    except RuntimeError as error:
        pytest.skip(str(error))
    yield request.param
    native.choose_instruction_set(None)
