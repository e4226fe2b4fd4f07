from __future__ import annotations

import collections
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from dorylax.graph import datasets
from dorylax.graph.datasets import DatasetError, planetoid

# A graph in the published form: 4 training vertices, 2 more that are not test, tests 8, 6, 9 in that order; 7 is
# listed nowhere, as citeseer has it. Feature row v is [v, v + 0.5] for all that have one.
CLASSES = [0, 1, 2, 0, 1, 2]
TEST, TEST_CLASSES = [8, 6, 9], [2, 1, 0]
LISTS = {0: [1, 1, 8], 1: [0], 2: [2, 3], 3: [], 8: [0], 9: [5]}


def matrix(ids: list[int]) -> csr_matrix:
    return csr_matrix(np.array([[v, v + 0.5] for v in ids], np.float32))


def one_hot(classes: list[int]) -> np.ndarray:
    return np.eye(3, dtype=np.int32)[classes]


def published(**changes: Any) -> dict[str, bytes]:
    parts = {
        "x": matrix([0, 1, 2, 3]),
        "y": one_hot(CLASSES[:4]),
        "tx": matrix(TEST),
        "ty": one_hot(TEST_CLASSES),
        "allx": matrix([0, 1, 2, 3, 4, 5]),
        "ally": one_hot(CLASSES),
        "graph": collections.defaultdict(list, LISTS),
        **changes,
    }
    files = {f"ind.citeseer.{part}": pickle.dumps(value, 2) for part, value in parts.items()}
    return {**files, "ind.citeseer.test.index": "".join(f"{v}\n" for v in TEST).encode()}


def test_reads_the_published_files(publish: Any) -> None:
    publish("citeseer", published())
    data = datasets.load("citeseer")
    assert data.name == "citeseer"
    assert data.labels.tolist() == [0, 1, 2, 0, 1, 2, 1, 0, 2, 0]
    assert data.features[:, 0].tolist() == [0, 1, 2, 3, 4, 5, 6, 0, 8, 9]
    assert data.features[7].tolist() == [0, 0]
    assert np.flatnonzero(data.train_mask).tolist() == [0, 1, 2, 3]
    assert np.flatnonzero(data.val_mask).tolist() == [4, 5]
    assert np.flatnonzero(data.test_mask).tolist() == [6, 8, 9]
    offsets, sources = data.graph.incoming.offsets, data.graph.incoming.neighbours
    pairs = list(zip(sources.tolist(), np.repeat(np.arange(10), np.diff(offsets)).tolist(), strict=True))
    both = [(0, 1), (0, 8), (2, 3), (5, 9)]
    assert sorted(pairs) == sorted([*both, *((v, u) for u, v in both), (2, 2)])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tx": matrix([8, 6])}, "do not fit each other: 3 test ids, 2 rows in tx, 3 in ty"),
        ({"allx": matrix(list(range(7)))}, "do not fit each other"),
        ({"allx": np.zeros((6, 2))}, "allx holds ndarray, not a sparse matrix"),
        ({"y": [1, 2]}, "y holds no matrix of labels"),
        ({"graph": [1, 2]}, "graph holds no adjacency lists"),
        ({"graph": {0: ["a"]}}, "graph holds no adjacency lists"),
        ({"graph": {0: [10]}}, "10 is out of range"),
    ],
)
def test_files_that_are_something_else(publish: Any, changes: dict[str, Any], message: str) -> None:
    publish("citeseer", published(**changes))
    with pytest.raises(ValueError, match=message):
        datasets.load("citeseer")


def test_ids_that_are_no_numbers(publish: Any) -> None:
    publish("citeseer", published() | {"ind.citeseer.test.index": b"<html>"})
    with pytest.raises(DatasetError, match="is not a list of vertex ids"):
        datasets.load("citeseer")


@pytest.mark.parametrize(("name", "loops"), [("cora", "none"), ("pubmed", "some")])
def test_the_real_ones(real_data: Path, name: str, loops: str) -> None:
    data = datasets.load(name)
    (entry,) = (entry for entry in planetoid.PUBLISHED if entry.name == name)
    found = datasets.Size(data.graph.num_vertices, data.graph.num_edges, data.num_features, data.num_classes)
    assert found == entry.size
    assert (data.train_mask.sum(), data.val_mask.sum(), data.test_mask.sum()) == (20 * data.num_classes, 500, 1000)
    assert (data.name, data.graph.symmetric, data.graph.self_loops) == (name, True, loops)
    assert np.bincount(data.labels[data.train_mask]).tolist() == [20] * data.num_classes
