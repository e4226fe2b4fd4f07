"""The plain-JAX meaning of the operators, and that the native kernels have the same."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dorylax import ops
from dorylax.graph.graph import Graph
from dorylax.ops import native, segment


def test_more_entries_than_int32_counts_are_refused():
    with pytest.raises(NotImplementedError, match="at most 2147483647 edges, the graph has 2147483648"):
        segment.rows(jnp.zeros((2, 2), jnp.uint32), 2**31)


@pytest.mark.skipif(not native.status().available, reason="compares the native kernels")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduce", ["sum", "max", "min"])
def test_kernels_and_segments_agree_forward_and_backward(x64, reduce, weighted):
    # Empty rows, loops, parallel edges, and a hub of several spans.
    rng = np.random.default_rng(1)
    sources, targets = rng.integers(0, 30, (2, 9000))
    graph = Graph.from_coo(sources, np.where(rng.random(9000) < 0.5, 3, targets), 34)
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.standard_normal((graph.num_vertices, 2, 5)))
    weight = jnp.asarray(rng.standard_normal((graph.num_edges, 2))) if weighted else None

    def both(x, weight):
        def loss(x, weight, graph):  # an argument: XLA would fold constants for minutes
            return jnp.sin(ops.gather(graph, x, weight, reduce=reduce) / 1000).sum()

        return jax.jit(jax.value_and_grad(loss, (0, 1) if weighted else 0))(x, weight, graph)

    kernels = both(x, weight)
    with native.plain_operators():
        segments = both(x, weight)  # another jit of another function: nothing of the kernels' is reused
    # The hub sums 70,000 terms of size 1 in another order: an error of up to 70,000 · 70,000 · 2⁻⁵³ before the division.
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=5e-7), kernels, segments)
