"""Every public operator: derivatives of second order, `vmap`, and refusal of arrays without a row for each vertex or edge.

Values are compared elsewhere: of operators with values per edge in `test_edge_order`, of the others in files of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from dorylax import ops

GRAPH_OF = np.array([2, 0, 2, 0, 3, 2, 0, 3, 0], np.int32)
OPERATORS: dict[str, Callable[..., Any]] = {
    "scatter_src": lambda g, x, e: ops.scatter_src(g, x),
    "scatter_dst": lambda g, x, e: jnp.sin(ops.scatter_dst(g, x)) * ops.scatter_src(g, x),
    **{
        f"gather_edges {reduce}": lambda g, x, e, reduce=reduce: ops.gather_edges(g, e, reduce=reduce)
        for reduce in ("sum", "mean", "max", "min")
    },
    "edge_softmax": lambda g, x, e: ops.edge_softmax(g, e),
    "edge_softmax with loops": lambda g, x, e: ops.edge_softmax(g, e, x),
    "global_mean": lambda g, x, e: ops.global_mean(g, x) ** 2,
    **{
        f"readout {reduce}": lambda g, x, e, reduce=reduce: ops.readout(
            jnp.asarray(x), jnp.asarray(GRAPH_OF), 5, reduce
        )
        for reduce in ("sum", "mean", "max")
    },
}


def values(graph: Any, *batch: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return tuple(jnp.asarray(rng.standard_normal((*batch, rows, 2))) for rows in (graph.num_vertices, graph.num_edges))


@pytest.mark.parametrize("name", OPERATORS)
def test_derivatives(small: Any, x64: None, name: str) -> None:
    check_grads(lambda x, e: OPERATORS[name](small, x, e), values(small), 2)


@pytest.mark.parametrize("name", OPERATORS)
def test_vmap_equals_a_loop(small: Any, name: str) -> None:
    x, e = values(small, 4)
    mapped = jax.vmap(lambda x, e: OPERATORS[name](small, x, e))(x, e)
    for k in range(4):
        jax.tree.map(
            lambda many, one, k=k: np.testing.assert_allclose(many[k], one, rtol=1e-6),
            mapped,
            OPERATORS[name](small, x[k], e[k]),
        )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g: ops.scatter_src(g, jnp.ones((16, 2))), "x must have one row for each of the graph's 9 vertices"),
        (lambda g: ops.gather_edges(g, jnp.ones((9, 2))), "e must have one row for each of the graph's 16 edges"),
        (lambda g: ops.edge_softmax(g, jnp.ones(3)), "scores must have one row for each of the graph's 16 edges"),
        (lambda g: ops.edge_softmax(g, jnp.ones((16, 2, 2)), jnp.ones((9, 2, 2))), "the same heads"),
        (lambda g: ops.global_sum(g, jnp.ones((5, 2))), "x must have one row for each of the graph's 9 vertices"),
    ],
)
def test_wrong_shapes_are_refused(small: Any, call: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(small)


def test_ties_for_an_extremum_of_edges_share_the_gradient_equally(small: Any, ends: Any) -> None:
    gradient = jax.grad(lambda e: ops.gather_edges(small, e, reduce="max").sum())(jnp.zeros(small.num_edges))
    degree = np.diff(small.incoming.offsets)
    np.testing.assert_allclose(gradient, 1 / degree[ends(small)[1]], rtol=1e-6)
