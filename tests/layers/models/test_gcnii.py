from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dorylax.graph.graph import Graph
from dorylax.layers import GCNII


def test_every_layer_reads_the_first_rows(messy_graph: Graph, run: Any) -> None:
    """α = 1 and W = 0 leave (1 - β) x_0 of the last layer, whatever the layers before it gave."""
    model = GCNII(4, 4, 4, num_layers=3, alpha=1.0, theta=0.5, dropout=0.0, rngs=nnx.Rngs(0))
    for linear in (model.linear_in, model.linear_out):
        linear.kernel[...] = jnp.eye(4)
    for conv in model.convs:
        conv.kernel[...] = jnp.zeros((4, 4))
    x = jnp.abs(jax.random.normal(jax.random.key(0), (12, 4)))
    np.testing.assert_allclose(run(model, messy_graph, x), (1 - math.log(0.5 / 3 + 1)) * x, rtol=1e-6)
    assert len(model.dropouts) == 5


def test_no_layer_is_refused() -> None:
    with pytest.raises(ValueError, match="num_layers must be ≥ 1, got 0"):
        GCNII(5, 4, 3, num_layers=0, rngs=nnx.Rngs(0))


def test_64_layers_gather_64_times(messy_graph: Graph) -> None:
    model = GCNII(5, 4, 3, rngs=nnx.Rngs(0))
    assert len(model.convs) == 64
    definition, state = nnx.split(model)
    jaxpr = jax.make_jaxpr(lambda state, x: nnx.merge(definition, state)(messy_graph, x))(state, jnp.ones((12, 5)))
    assert sum("gather_sum" in equation.primitive.name for equation in jaxpr.eqns) == 64
