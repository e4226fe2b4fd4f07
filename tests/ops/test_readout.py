"""Rows of graphs from rows of vertices, beside a loop over the graphs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from jaxtyping import TypeCheckError

from dorylax.ops import readout

GRAPH_OF = np.array([2, 0, 2, 0, 3, 2], np.int32)  # in any order; graphs 1 and 4 have no vertex
REDUCE = {"sum": np.sum, "mean": np.mean, "max": np.max}


@pytest.mark.parametrize("reduce", REDUCE)
@pytest.mark.parametrize("rest", [(), (3,), (2, 3)])
def test_each_graph_is_reduced_by_itself(reduce, rest) -> None:
    x = np.random.default_rng(0).normal(size=(6, *rest)).astype(np.float32) - 5
    found = readout(jnp.asarray(x), jnp.asarray(GRAPH_OF), 5, reduce)
    for number, row in enumerate(np.asarray(found)):
        own = x[number == GRAPH_OF]
        expected = REDUCE[reduce](own, axis=0) if len(own) else np.zeros(rest)
        np.testing.assert_allclose(row, expected, rtol=1e-6)
    assert found.dtype == x.dtype


@pytest.mark.parametrize("reduce", REDUCE)
def test_it_is_differentiable(reduce) -> None:
    x = jnp.asarray(np.random.default_rng(1).permutation(18).reshape(6, 3), jnp.float32)

    def function(x):
        return readout(jnp.asarray(x), jnp.asarray(GRAPH_OF), 5, reduce)

    check_grads(function, (x,), order=1, modes=("fwd", "rev"), rtol=1e-2)


def test_narrow_sums_are_added_up_in_float32() -> None:
    x = jnp.full((4096, 1), 1.0, jnp.bfloat16)  # in bfloat16 a sum of ones stops at 256
    found = readout(x, jnp.zeros(4096, jnp.int32), 1)
    assert found.dtype == jnp.bfloat16
    assert float(found[0, 0]) == 4096


def test_it_can_be_batched() -> None:
    x = jnp.asarray(np.random.default_rng(2).normal(size=(3, 6, 2)), jnp.float32)
    found = jax.vmap(lambda one: readout(one, jnp.asarray(GRAPH_OF), 5, "mean"))(x)
    np.testing.assert_allclose(found[1], readout(x[1], jnp.asarray(GRAPH_OF), 5, "mean"), rtol=1e-6)


def test_another_way_is_refused() -> None:
    with pytest.raises((ValueError, TypeCheckError), match="median"):
        readout(jnp.ones((6, 1)), jnp.asarray(GRAPH_OF), 5, "median")  # type: ignore[arg-type]
