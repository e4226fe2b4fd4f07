from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import dorylax
from dorylax.program.model.base import Keywords
from dorylax.program.tracing.spec import DataSpec, RowSpec

LABELS = RowSpec("vertex", (), "int32", "labels")


def test_equal_however_it_is_written() -> None:
    assert RowSpec("edge", (2,), jnp.bfloat16) == RowSpec("edge", (2,), "bfloat16")
    assert hash(RowSpec("edge", (2,), np.float32)) == hash(RowSpec("edge", (2,)))


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match=r"DataSpec.inputs is empty"):
        DataSpec((), LABELS)
    with pytest.raises(ValueError, match=r"DataSpec.labels must have a row per vertex"):
        DataSpec((RowSpec("vertex", (3,)),), RowSpec("edge", (), "int32"))
    with pytest.raises(ValueError, match=r"DataSpec.named has 'pos' twice"):
        DataSpec(
            (RowSpec("vertex", (3,)),), LABELS, (RowSpec("vertex", (), name="pos"), RowSpec("edge", (), name="pos"))
        )


def test_of_a_data_set() -> None:
    data = dorylax.load("communities", size="tiny")
    spec = DataSpec.of(data)
    assert spec.inputs == (RowSpec("vertex", (data.num_features,), data.features.dtype, "features"),)
    assert spec.labels == RowSpec("vertex", data.labels.shape[1:], data.labels.dtype, "labels")
    assert (spec.num_vertices, spec.num_edges) == (data.graph.num_vertices, data.graph.num_edges)
    assert (spec.self_loops, spec.symmetric) == (data.graph.self_loops, data.graph.symmetric)


def test_further_inputs_are_those_that_the_model_takes() -> None:
    data = dorylax.load("communities", size="tiny")
    V, E = data.graph.num_vertices, data.graph.num_edges
    data = dataclasses.replace(
        data,
        vertex_inputs={"pos": np.ones((V, 2), np.float32), "age": np.ones(V, np.int32)},
        edge_inputs={"kind": np.ones((E, 3), bool)},
    )
    pos, kind = RowSpec("vertex", (2,), np.float32, "pos"), RowSpec("edge", (3,), bool, "kind")
    assert DataSpec.of(data).named == ()
    assert DataSpec.of(data, Keywords(("pos", "kind", "more"))).named == (kind, pos)
    spec = DataSpec.of(data, Keywords(any=True))
    assert [entry.name for entry in spec.rows] == ["features", "age", "kind", "pos"]
    assert spec.call([0, 1, 2, 3]) == ((0,), {"age": 1, "kind": 2, "pos": 3})
