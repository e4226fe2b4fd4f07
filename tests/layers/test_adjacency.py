from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dorylax.graph.graph import Graph
from dorylax.layers.adjacency import normalised_adjacency


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_matrix_form(weighted: bool, messy_graph: Graph, edges: Callable[[Graph], np.ndarray], x64: None) -> None:
    rng = np.random.default_rng(0)
    sources, targets = edges(messy_graph)
    weight = rng.uniform(0.5, 2, messy_graph.num_edges) if weighted else None
    A = np.zeros((12, 12))
    np.add.at(A, (targets, sources), 1 if weight is None else weight)
    A += np.diag(np.diag(A) == 0)
    D = np.diag(A.sum(1) ** -0.5)
    x = rng.normal(size=(12, 4))
    times = jax.jit(lambda graph, x, weight: normalised_adjacency(graph, x, weight).times(x))
    np.testing.assert_allclose(times(messy_graph, x, weight), D @ A @ D @ x, atol=1e-12)


def test_degrees_are_counted_in_single_precision(make_graph: Callable[..., Graph]) -> None:
    """bfloat16 would count 257 neighbours and a loop as 256."""
    graph = make_graph(np.arange(1, 258), np.zeros(257, np.int32), 258)
    adjacency = normalised_adjacency(graph, jnp.ones((258, 1), jnp.bfloat16))
    assert adjacency.scale.dtype == jnp.bfloat16
    assert adjacency.scale[0, 0] == jnp.asarray(258**-0.5, jnp.bfloat16)
