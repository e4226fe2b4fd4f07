from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dorylax
from dorylax.program.spec import DataSpec, RowSpec
from dorylax.program.symbols import Dimensions, new_dimensions

LABELS = RowSpec("vertex", (), "int32", "labels")


def test_equal_however_it_is_written() -> None:
    assert RowSpec("edge", (2,), jnp.bfloat16) == RowSpec("edge", (2,), "bfloat16")
    assert hash(RowSpec("edge", (2,), np.float32)) == hash(RowSpec("edge", (2,)))


def test_arrays_are_symbolic() -> None:
    n, e = new_dimensions()
    spec = RowSpec("edge", (2, 3), "float64").abstract(Dimensions(n, e))
    assert spec.shape == (e, 2, 3)
    assert spec.dtype == jnp.float32  # as JAX narrows it
    with jax.enable_x64(True):
        assert RowSpec("vertex", (), "float64").abstract(new_dimensions()).dtype == jnp.float64


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match=r"DataSpec.inputs is empty"):
        DataSpec((), LABELS)
    with pytest.raises(ValueError, match=r"DataSpec.labels must have a row per vertex"):
        DataSpec((RowSpec("vertex", (3,)),), RowSpec("edge", (), "int32"))


def test_of_a_data_set() -> None:
    data = dorylax.load("communities", size="tiny")
    spec = DataSpec.of(data)
    assert spec.inputs == (RowSpec("vertex", (data.num_features,), data.features.dtype, "features"),)
    assert spec.labels == RowSpec("vertex", data.labels.shape[1:], data.labels.dtype, "labels")
    assert (spec.num_vertices, spec.num_edges) == (data.graph.num_vertices, data.graph.num_edges)
    assert (spec.self_loops, spec.symmetric) == (data.graph.self_loops, data.graph.symmetric)
