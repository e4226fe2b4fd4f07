"""Published data sets of arrays: OGB, reddit, and those of Shchur et al."""

from __future__ import annotations

import gzip
import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import coo_matrix, csr_matrix, save_npz

from dorylax.graph import Dataset, GraphError, datasets
from dorylax.graph.datasets import DatasetError, registry

SPLITS = {"ogbn-arxiv": ("arxiv", "time"), "ogbn-products": ("products", "sales_ranking")}


def archive_ogb(name: str, **changes: str | None) -> bytes:
    folder, split = SPLITS[name]
    tables: dict[str, str | None] = {
        "raw/edge.csv.gz": "0,1\n2,1\n1,2\n3,3\n",
        "raw/num-node-list.csv.gz": "4\n",
        "raw/num-edge-list.csv.gz": "4\n",
        "raw/node-feat.csv.gz": "0.5,-1e-3\n1.0,2\n3,4\n-0.25,0\n",
        "raw/node-label.csv.gz": "0\n1\n4\n0\n",
        f"split/{split}/train.csv.gz": "1\n3\n",
        f"split/{split}/valid.csv.gz": "0\n",
        f"split/{split}/test.csv.gz": "2\n",
        **changes,
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        for path, table in tables.items():
            if table is not None:
                file.writestr(f"{folder}/{path}", gzip.compress(table.encode()))
    return packed.getvalue()


def check_ogb(data: Dataset) -> None:
    assert data.features.tolist() == np.array([[0.5, -1e-3], [1, 2], [3, 4], [-0.25, 0]], np.float32).tolist()
    assert (data.labels.tolist(), data.num_classes) == ([0, 1, 4, 0], 5)
    assert [np.flatnonzero(m).tolist() for m in (data.train_mask, data.val_mask, data.test_mask)] == [[1, 3], [0], [2]]
    graph = data.graph
    assert (graph.incoming.offsets.tolist(), graph.incoming.neighbours.tolist()) == ([0, 1, 3, 4, 5], [1, 0, 2, 1, 3])
    assert (graph.symmetric, graph.self_loops) == (True, "some")


def test_a_result_that_cannot_be_kept_is_no_error_of_ogb(
    publish: Any, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    publish("ogbn-arxiv", {"arxiv.zip": archive_ogb("ogbn-arxiv")})
    cache.mkdir()
    (cache / "parsed-2").write_text("in the way")
    check_ogb(datasets.load("ogbn-arxiv"))
    assert "could not keep" in caplog.text


REDDIT_FEATURES = np.arange(12, dtype=np.float64).reshape(4, 3)
REDDIT_LABELS = np.array([2, 0, 1, 2])
REDDIT_TYPES = np.array([1, 3, 2, 1])


def archive_reddit(members: dict[str, bytes] | None = None, **changes: Any) -> bytes:
    data, edges = io.BytesIO(), io.BytesIO()
    arrays = {
        "feature": REDDIT_FEATURES,
        "label": REDDIT_LABELS,
        "node_types": REDDIT_TYPES,
        "node_ids": np.arange(4),
        **changes,
    }
    np.savez(data, **{name: array for name, array in arrays.items() if array is not None})
    save_npz(edges, coo_matrix((np.ones(4), ([0, 1, 1, 3], [1, 0, 3, 1])), shape=(4, 4)))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for name, body in (
            {"reddit_data.npz": data.getvalue(), "reddit_graph.npz": edges.getvalue()} | (members or {})
        ).items():
            file.writestr(name, body)
    return packed.getvalue()


def check_reddit(data: Dataset) -> None:
    assert (data.features.dtype, data.features.tolist()) == (np.float32, REDDIT_FEATURES.tolist())
    assert (data.labels.tolist(), data.num_classes) == (REDDIT_LABELS.tolist(), 3)
    assert [np.flatnonzero(m).tolist() for m in (data.train_mask, data.val_mask, data.test_mask)] == [[0, 3], [2], [1]]
    graph = data.graph
    assert (graph.incoming.offsets.tolist(), graph.incoming.neighbours.tolist()) == ([0, 1, 3, 3, 4], [1, 0, 3, 1])
    assert graph.symmetric


SHCHUR_FEATURES = np.arange(15, dtype=np.float32).reshape(5, 3)
SHCHUR_LABELS = [0, 1, 2, 1, 0]
SHCHUR_EDGES = [(0, 1), (1, 0), (1, 2), (3, 1), (4, 4)]


def archive_shchur(**changes: Any) -> bytes:
    adjacency = csr_matrix((np.ones(5), tuple(zip(*SHCHUR_EDGES, strict=True))), shape=(5, 5))
    attributes = csr_matrix(SHCHUR_FEATURES)
    arrays = {
        **{f"adj_{part}": getattr(adjacency, part) for part in ("data", "indices", "indptr", "shape")},
        **{f"attr_{part}": getattr(attributes, part) for part in ("data", "indices", "indptr", "shape")},
        "labels": np.array(SHCHUR_LABELS, np.int64),
        "node_names": np.array([{"a": 1}] * 5, object),  # pickled: never to be opened
        **changes,
    }
    file = io.BytesIO()
    np.savez(file, **{name: array for name, array in arrays.items() if array is not None})
    return file.getvalue()


def check_shchur(data: Any) -> None:
    assert np.array_equal(data.features, SHCHUR_FEATURES)
    assert (data.labels.tolist(), data.num_classes) == (SHCHUR_LABELS, 3)
    assert data.train_mask.sum() == 3
    sources, offsets = data.graph.incoming.neighbours, data.graph.incoming.offsets
    assert (offsets.tolist(), sources.tolist()) == ([0, 1, 4, 5, 6, 7], [1, 0, 2, 3, 1, 1, 4])
    assert (data.graph.symmetric, data.graph.self_loops) == (True, "some")


DENSE = {f"attr_{part}": None for part in ("data", "indices", "indptr", "shape")}
PHOTO = archive_shchur(attr_matrix=SHCHUR_FEATURES, **DENSE)
READ = {
    "ogbn-arxiv": ("ogb/arxiv.zip", archive_ogb("ogbn-arxiv"), check_ogb),
    "ogbn-products": ("ogb/products.zip", archive_ogb("ogbn-products"), check_ogb),
    "reddit": ("reddit/reddit.zip", archive_reddit(), check_reddit),
    "coauthor-cs": ("shchur/ms_academic_cs.npz", archive_shchur(), check_shchur),
    "amazon-photo": ("shchur/amazon_electronics_photo.npz", PHOTO, check_shchur),
}


@pytest.mark.parametrize("name", READ)
def test_reads_the_published_file_and_keeps_the_result(publish: Any, server: Any, cache: Path, name: str) -> None:
    path, body, check = READ[name]
    publish(name, {Path(path).name: body})
    check(datasets.load(name))
    assert [found.name for found in (cache / path).parent.iterdir()] == [Path(path).name]  # nothing is left unpacked
    (line,) = (line for line in datasets.describe() if line.name == name)
    assert line.origin == "cache"
    if registry.PUBLISHED[name].slow:
        (cache / path).unlink()
        check(datasets.load(name))  # from what was kept
    assert len(server.requests) == 1


BAD = [
    ("ogbn-arxiv", archive_ogb("ogbn-arxiv", **changes), error, message)
    for changes, error, message in [
        ({"raw/edge.csv.gz": None}, DatasetError, "There is no item named 'arxiv/raw/edge.csv.gz'"),
        ({"raw/edge.csv.gz": "a,b\n"}, DatasetError, "arxiv/raw/edge.csv.gz is not a table of numbers"),
        ({"raw/edge.csv.gz": "0,4\n"}, GraphError, "4 is out of range"),
        ({"raw/node-feat.csv.gz": "1,2\n3\n"}, DatasetError, "node-feat.csv.gz is not a table of numbers"),
        ({"raw/node-label.csv.gz": "0\n1\n"}, GraphError, "labels has length 2"),
    ]
]
BAD += [("reddit", b"<html>sorry</html>", DatasetError, "is not the archive of the reddit data set")]
BAD += [
    ("reddit", archive_reddit(**changes), GraphError, message)
    for changes, message in [
        ({"label": None}, "no array label"),
        ({"members": {"reddit_graph.npz": b"?"}}, "not an npz archive"),
        ({"node_types": np.array([1, 1])}, "train_mask has length 2"),
    ]
]
BAD += [
    ("coauthor-cs", archive_shchur(**changes), GraphError, message)
    for changes, message in [
        ({"labels": None}, "no array labels"),
        ({"attr_data": None}, "no array attr_data"),
        ({"labels": np.array([{}] * 5, object)}, "labels cannot be read"),
        ({"attr_indices": np.full(14, 3, np.int32)}, "attr_indices"),
        ({"adj_indices": np.full(5, 5, np.int32)}, "5 is out of range"),
        ({"labels": np.zeros(4, np.int64)}, "labels has length 4"),
    ]
]


@pytest.mark.parametrize(("name", "body", "error", "message"), BAD, ids=[f"{one[0]}: {one[3]}" for one in BAD])
def test_archives_that_are_something_else(publish: Any, name: str, body: bytes, error: type, message: str) -> None:
    publish(name, {Path(registry.PUBLISHED[name].sources[0].path).name: body})
    with pytest.raises(error, match=message):
        datasets.load(name)


@pytest.mark.parametrize("name", ["amazon-photo", "coauthor-cs"])
def test_the_real_ones_of_shchur(real_data: Path, name: str) -> None:
    data = datasets.load(name)
    found = datasets.Size(data.graph.num_vertices, data.graph.num_edges, data.num_features, data.num_classes)
    assert found == registry.PUBLISHED[name].size
    assert (data.name, data.graph.symmetric) == (name, True)
    masks = data.train_mask, data.val_mask, data.test_mask
    assert sum(mask.sum() for mask in masks) == data.graph.num_vertices
    again = datasets.load(name, split_seed=1)
    assert not np.array_equal(data.train_mask, again.train_mask)
