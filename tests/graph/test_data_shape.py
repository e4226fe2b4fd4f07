"""Shapes of data sets, against the data sets."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

import dorylax
from dorylax.graph.data_shape import DataShape, abstract_data
from dorylax.graph.dataset import Dataset
from dorylax.graph.graph import Graph
from dorylax.program.model.base import signature
from dorylax.program.tracing.spec import DataSpec


def _directed() -> Dataset:
    rng = np.random.default_rng(0)
    data = dorylax.load("communities", size="tiny")
    graph = Graph.from_coo(rng.integers(0, 1000, 5000), rng.integers(0, 1000, 5000), 1000)
    indicators = np.eye(4, dtype=np.float32)[data.labels]
    return dataclasses.replace(data, graph=graph, labels=indicators, multilabel=True)


def _targets() -> Dataset:
    data = dorylax.load("communities", size="tiny")
    edges = {"weight": np.ones(data.graph.num_edges), "flag": np.ones((data.graph.num_edges, 3), bool)}
    pos = {"pos": np.ones((1000, 2, 3)), "id": np.arange(1000)}
    return Dataset("targets", data.graph, data.features, data.features[:, :5], vertex_inputs=pos, edge_inputs=edges)


@pytest.fixture(params=["symmetric", "reordered", "directed, multi-label", "targets, further inputs"])
def data(request: pytest.FixtureRequest) -> Dataset:
    if request.param.startswith("targets"):
        return _targets()
    if request.param.startswith("directed"):
        return _directed()
    found = dorylax.load("communities", size="tiny")
    return found.reorder(np.arange(1000)[::-1]) if request.param == "reordered" else found


def test_a_copy_has_the_bytes_of_the_arrays(data: Dataset) -> None:
    masks, further = (data.train_mask, data.val_mask, data.test_mask), (data.vertex_inputs, data.edge_inputs)
    leaves = jax.tree.leaves((data.graph, data.features, data.labels, masks, further))
    assert sum(DataShape.of(data).copy().values()) == sum(np.asarray(leaf).nbytes for leaf in leaves)


def test_what_is_traced_on_shapes_is_what_would_be_traced_on_the_data(data: Dataset) -> None:
    abstract = abstract_data(DataShape.of(data))
    real, found = (
        (one.graph, one.features, one.labels, one.vertex_inputs, one.edge_inputs) for one in (data, abstract)
    )
    assert signature(found) == signature(real)
    assert (abstract.num_classes, abstract.multilabel) == (data.num_classes, data.multilabel)
    assert DataSpec.of(abstract) == DataSpec.of(data)


def test_past_2_to_the_31_edges_there_are_no_ids() -> None:
    shape = DataShape(10, 2**31, 4, 2)
    assert "order of reversed edges" not in shape.copy()
    assert not abstract_data(shape).graph.edge_ids_fit
