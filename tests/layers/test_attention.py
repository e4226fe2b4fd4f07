from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from flax import nnx

from dorylax.graph.graph import Graph
from dorylax.layers import Dropout
from dorylax.layers.attention import attend


def test_loops_count_only_where_a_vertex_has_none_of_its_own(make_graph: Callable[..., Graph]) -> None:
    """0 → 1 and 1 → 1: vertex 0 attends to its implicit loop alone, vertex 1 to its two edges."""
    z, scores = jnp.array([[[2.0]], [[8.0]]]), jnp.log(jnp.array([[1.0], [3.0]]))
    loop_scores = jnp.array([[5.0], [100.0]])
    y = attend(make_graph([0, 1], [1, 1], 2), z, scores, loop_scores, Dropout(0.0, rngs=nnx.Rngs(0)))
    np.testing.assert_allclose(y[:, 0, 0], [2, (1 * 2 + 3 * 8) / 4], rtol=1e-6)


def test_heads_are_apart(make_graph: Callable[..., Graph]) -> None:
    z = jnp.array([[[1.0], [10.0]], [[3.0], [30.0]]])
    scores = jnp.log(jnp.array([[1.0, 3.0]]))
    y = attend(make_graph([0], [1], 2), z, scores, jnp.zeros((2, 2)), Dropout(0.0, rngs=nnx.Rngs(0)))
    np.testing.assert_allclose(y[1, :, 0], [(1 + 3) / 2, (3 * 10 + 30) / 4], rtol=1e-6)
