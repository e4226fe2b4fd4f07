"""Graphs side by side as one: vertices, edges and all that they have, in the order in which they were given."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from support.graphs import pairs

from dorylax.graph import Graph, GraphError, merge_graphs
from dorylax.graph.dataset import Dataset
from dorylax.ops import gather


def _graph(sources: list[int], targets: list[int], size: int, weights: list[float]) -> Graph:
    return Graph.from_coo(sources, targets, size, edge_data={"weight": np.array(weights, np.float32)})


FIRST = _graph([1, 0, 2], [0, 2, 0], 3, [1, 2, 3])
ALONE = _graph([], [], 1, [])
LAST = _graph([1, 0], [0, 1], 2, [4, 5])
FEATURES = [np.arange(6).reshape(3, 2), [[6, 7]], [[8, 9], [10, 11]]]


def _merged(**options: Any) -> Dataset:
    return merge_graphs("three", [FIRST, ALONE, LAST], FEATURES, [1, 0, 1], **options)


def test_vertices_and_edges_follow_one_another() -> None:
    data = _merged()
    assert data.vertex_inputs["graph_of"].tolist() == [0, 0, 0, 1, 2, 2]
    assert data.features.tolist() == np.arange(12).reshape(6, 2).tolist()
    assert data.labels.tolist() == [1, 1, 1, 0, 1, 1]
    assert sorted(pairs(data.graph)) == [(0, 2), (1, 0), (2, 0), (4, 5), (5, 4)]
    # Edge k keeps its value: messages are weighted as in each graph alone.
    assert data.edge_inputs["weight"].tolist() == [1, 2, 3, 4, 5]
    x = jnp.asarray(data.features)
    whole = gather(data.graph, x, edge_weight=jnp.asarray(data.edge_inputs["weight"]))
    apart = [
        gather(graph, jnp.asarray(rows, jnp.float32), edge_weight=jnp.asarray(graph.edge_data["weight"]))
        for graph, rows in zip((FIRST, ALONE, LAST), FEATURES, strict=True)
    ]
    np.testing.assert_allclose(whole, np.concatenate(apart))


@pytest.mark.parametrize("mask", [[True, False, True], [0, 2]])
def test_masks_are_of_graphs(mask: Any) -> None:
    data = _merged(train_mask=mask, test_mask=[1])
    assert data.train_mask.tolist() == [True] * 3 + [False] + [True] * 2
    assert data.test_mask.tolist() == [False] * 3 + [True] + [False] * 2
    assert not data.val_mask.any()


def test_further_inputs_and_archives(tmp_path) -> None:
    data = _merged(vertex_inputs={"age": [[1, 2, 3], [4], [5, 6]]})
    assert data.vertex_inputs["age"].tolist() == [1, 2, 3, 4, 5, 6]
    data.save(tmp_path / "three")
    again = Dataset.from_folder(tmp_path / "three")
    assert again.vertex_inputs["graph_of"].tolist() == data.vertex_inputs["graph_of"].tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"graphs": []}, "at least one graph"),
        ({"graphs": [FIRST, Graph.from_coo([], [], 0), LAST]}, "graph 1 has no vertex, so nothing is known of it"),
        ({"graphs": [FIRST, Graph.from_coo([0], [0], 1), LAST]}, r"edges of graph 1 have \[\], those of graph 0 \["),
        ({"graphs": [FIRST.reorder([2, 1, 0]), ALONE, LAST]}, "graph 0 was reordered"),
        ({"features": FEATURES[:2]}, "features has length 2: expected 3"),
        ({"features": [FEATURES[0], FEATURES[0], FEATURES[2]]}, r"features\[1\] has length 3: expected 1"),
        ({"labels": [1, 0]}, "labels has length 2: expected 3"),
    ],
)
def test_what_cannot_be_is_named(change: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"graphs": [FIRST, ALONE, LAST], "features": FEATURES, "labels": [1, 0, 1], **change}
    if not given["graphs"]:
        given |= {"features": [], "labels": []}
    with pytest.raises(GraphError, match=message):
        merge_graphs("three", **given)
