from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from dorylax.graph import GraphError, datasets
from dorylax.graph.datasets import shchur

FEATURES = np.arange(15, dtype=np.float32).reshape(5, 3)
LABELS = [0, 1, 2, 1, 0]
EDGES = [(0, 1), (1, 0), (1, 2), (3, 1), (4, 4)]


def archive(**changes: Any) -> bytes:
    adjacency = csr_matrix((np.ones(5), tuple(zip(*EDGES, strict=True))), shape=(5, 5))
    attributes = csr_matrix(FEATURES)
    arrays = {
        **{f"adj_{part}": getattr(adjacency, part) for part in ("data", "indices", "indptr", "shape")},
        **{f"attr_{part}": getattr(attributes, part) for part in ("data", "indices", "indptr", "shape")},
        "labels": np.array(LABELS, np.int64),
        "node_names": np.array([{"a": 1}] * 5, object),  # pickled: never to be opened
        **changes,
    }
    file = io.BytesIO()
    np.savez(file, **{name: array for name, array in arrays.items() if array is not None})
    return file.getvalue()


def check(data: Any) -> None:
    assert np.array_equal(data.features, FEATURES)
    assert (data.labels.tolist(), data.num_classes) == (LABELS, 3)
    assert data.train_mask.sum() == 3
    sources, offsets = data.graph.incoming.neighbours, data.graph.incoming.offsets
    assert (offsets.tolist(), sources.tolist()) == ([0, 1, 4, 5, 6, 7], [1, 0, 2, 3, 1, 1, 4])
    assert (data.graph.symmetric, data.graph.self_loops) == (True, "some")


def test_reads_the_published_file(publish: Any) -> None:
    publish("coauthor-cs", {"ms_academic_cs.npz": archive()})
    check(datasets.load("coauthor-cs"))


def test_reads_dense_features(publish: Any) -> None:
    dense = {f"attr_{part}": None for part in ("data", "indices", "indptr", "shape")}
    publish("amazon-photo", {"amazon_electronics_photo.npz": archive(attr_matrix=FEATURES, **dense)})
    check(datasets.load("amazon-photo"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": None}, "no array labels"),
        ({"attr_data": None}, "no array attr_data"),
        ({"labels": np.array([{}] * 5, object)}, "labels cannot be read"),
        ({"attr_indices": np.full(14, 3, np.int32)}, "attr_indices"),
        ({"adj_indices": np.full(5, 5, np.int32)}, "5 is out of range"),
        ({"labels": np.zeros(4, np.int64)}, "labels has length 4"),
    ],
)
def test_archives_that_are_something_else(publish: Any, changes: dict[str, Any], message: str) -> None:
    publish("coauthor-cs", {"ms_academic_cs.npz": archive(**changes)})
    with pytest.raises(GraphError, match=message):
        datasets.load("coauthor-cs")


@pytest.mark.parametrize("name", ["amazon-photo", "coauthor-cs"])
def test_the_real_ones(real_data: Path, name: str) -> None:
    data = datasets.load(name)
    (entry,) = (entry for entry in shchur.PUBLISHED if entry.name == name)
    found = datasets.Size(data.graph.num_vertices, data.graph.num_edges, data.num_features, data.num_classes)
    assert found == entry.size
    assert (data.name, data.graph.symmetric) == (name, True)
    masks = data.train_mask, data.val_mask, data.test_mask
    assert sum(mask.sum() for mask in masks) == data.graph.num_vertices
    again = datasets.load(name, split_seed=1)
    assert not np.array_equal(data.train_mask, again.train_mask)
