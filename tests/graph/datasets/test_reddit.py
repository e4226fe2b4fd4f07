from __future__ import annotations

import io
import zipfile
from typing import Any

import numpy as np
import pytest
from scipy.sparse import coo_matrix, save_npz

from dorylax.graph import Dataset, GraphError, datasets
from dorylax.graph.datasets import DatasetError

FEATURES = np.arange(12, dtype=np.float64).reshape(4, 3)
LABELS = np.array([2, 0, 1, 2])
TYPES = np.array([1, 3, 2, 1])


def archive(members: dict[str, bytes] | None = None, **changes: Any) -> bytes:
    data, edges = io.BytesIO(), io.BytesIO()
    arrays = {"feature": FEATURES, "label": LABELS, "node_types": TYPES, "node_ids": np.arange(4), **changes}
    np.savez(data, **{name: array for name, array in arrays.items() if array is not None})
    save_npz(edges, coo_matrix((np.ones(4), ([0, 1, 1, 3], [1, 0, 3, 1])), shape=(4, 4)))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for name, body in (
            {"reddit_data.npz": data.getvalue(), "reddit_graph.npz": edges.getvalue()} | (members or {})
        ).items():
            file.writestr(name, body)
    return packed.getvalue()


def test_reads_the_published_file_and_keeps_the_result(publish: Any, server: Any, cache: Any) -> None:
    publish("reddit", {"reddit.zip": archive()})
    check(datasets.load("reddit"))
    assert [path.name for path in (cache / "reddit").iterdir()] == ["reddit.zip"]  # nothing left unpacked
    (cache / "reddit" / "reddit.zip").unlink()
    check(datasets.load("reddit"))  # from what was kept
    assert len(server.requests) == 1


def check(data: Dataset) -> None:
    assert (data.features.dtype, data.features.tolist()) == (np.float32, FEATURES.tolist())
    assert (data.labels.tolist(), data.num_classes) == (LABELS.tolist(), 3)
    assert [np.flatnonzero(m).tolist() for m in (data.train_mask, data.val_mask, data.test_mask)] == [[0, 3], [2], [1]]
    graph = data.graph
    assert (graph.incoming.offsets.tolist(), graph.incoming.neighbours.tolist()) == ([0, 1, 3, 3, 4], [1, 0, 3, 1])
    assert graph.symmetric


def test_archives_that_are_something_else(publish: Any) -> None:
    publish("reddit", {"reddit.zip": b"<html>sorry</html>"})
    with pytest.raises(DatasetError, match="is not the archive of the reddit data set"):
        datasets.load("reddit")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label": None}, "no array label"),
        ({"members": {"reddit_graph.npz": b"?"}}, "not an npz archive"),
        ({"node_types": np.array([1, 1])}, "train_mask has length 2"),
    ],
)
def test_arrays_that_are_something_else(publish: Any, changes: dict[str, Any], message: str) -> None:
    publish("reddit", {"reddit.zip": archive(**changes)})
    with pytest.raises(GraphError, match=message):
        datasets.load("reddit")
