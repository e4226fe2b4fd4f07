"""Shapes of data sets, against the data sets."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

import dorylax
from dorylax.graph.dataset import Dataset
from dorylax.graph.graph import Graph
from dorylax.memory.shapes import DataShape, abstract_data
from dorylax.program.model.base import signature
from dorylax.program.spec import DataSpec


def _directed() -> Dataset:
    rng = np.random.default_rng(0)
    data = dorylax.load("communities", size="tiny")
    graph = Graph.from_coo(rng.integers(0, 1000, 5000), rng.integers(0, 1000, 5000), 1000)
    indicators = np.eye(4, dtype=np.float32)[data.labels]
    return dataclasses.replace(data, graph=graph, labels=indicators, multilabel=True)


@pytest.fixture(params=["symmetric", "reordered", "directed, multi-label"])
def data(request: pytest.FixtureRequest) -> Dataset:
    if request.param.startswith("directed"):
        return _directed()
    found = dorylax.load("communities", size="tiny")
    return found.reorder(np.arange(1000)[::-1]) if request.param == "reordered" else found


def test_a_copy_has_the_bytes_of_the_arrays(data: Dataset) -> None:
    leaves = jax.tree.leaves((data.graph, data.features, data.labels, data.train_mask, data.val_mask, data.test_mask))
    assert sum(DataShape.of(data).copy().values()) == sum(np.asarray(leaf).nbytes for leaf in leaves)


def test_what_is_traced_on_shapes_is_what_would_be_traced_on_the_data(data: Dataset) -> None:
    abstract = abstract_data(DataShape.of(data))
    real = (data.graph, data.features, data.labels)
    assert signature((abstract.graph, abstract.features, abstract.labels)) == signature(real)
    assert DataSpec.of(abstract) == DataSpec.of(data)


def test_past_2_to_the_31_edges_there_are_no_ids() -> None:
    shape = DataShape(10, 2**31, 4, 2)
    assert "order of reversed edges" not in shape.copy()
    assert not abstract_data(shape).graph.edge_ids_fit
