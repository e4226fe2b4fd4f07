from __future__ import annotations

import gzip
import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dorylax.graph import Dataset, datasets
from dorylax.graph.datasets import DatasetError

SPLITS = {"ogbn-arxiv": ("arxiv", "time"), "ogbn-products": ("products", "sales_ranking")}


def archive(name: str, **changes: str | None) -> bytes:
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


def check(data: Dataset) -> None:
    assert data.features.tolist() == np.array([[0.5, -1e-3], [1, 2], [3, 4], [-0.25, 0]], np.float32).tolist()
    assert (data.labels.tolist(), data.num_classes) == ([0, 1, 4, 0], 5)
    assert [np.flatnonzero(m).tolist() for m in (data.train_mask, data.val_mask, data.test_mask)] == [[1, 3], [0], [2]]
    graph = data.graph
    assert (graph.incoming.offsets.tolist(), graph.incoming.neighbours.tolist()) == ([0, 1, 3, 4, 5], [1, 0, 2, 1, 3])
    assert (graph.symmetric, graph.self_loops) == (True, "some")


@pytest.mark.parametrize("name", list(SPLITS))
def test_reads_the_published_file_and_keeps_the_result(publish: Any, server: Any, cache: Path, name: str) -> None:
    publish(name, {f"{SPLITS[name][0]}.zip": archive(name)})
    check(datasets.load(name))
    (cache / "ogb" / f"{SPLITS[name][0]}.zip").unlink()
    check(datasets.load(name))  # from what was kept
    assert len(server.requests) == 1
    (line,) = (line for line in datasets.describe() if line.name == name)
    assert line.origin == "cache"


def test_a_result_that_cannot_be_kept_is_no_error(publish: Any, cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    publish("ogbn-arxiv", {"arxiv.zip": archive("ogbn-arxiv")})
    cache.mkdir()
    (cache / "parsed-2").write_text("in the way")
    check(datasets.load("ogbn-arxiv"))
    assert "could not keep" in caplog.text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"raw/edge.csv.gz": None}, "There is no item named 'arxiv/raw/edge.csv.gz'"),
        ({"raw/edge.csv.gz": "a,b\n"}, "arxiv/raw/edge.csv.gz is not a table of numbers"),
        ({"raw/edge.csv.gz": "0,4\n"}, "4 is out of range"),
        ({"raw/node-feat.csv.gz": "1,2\n3\n"}, "node-feat.csv.gz is not a table of numbers"),
        ({"raw/node-label.csv.gz": "0\n1\n"}, "labels has length 2"),
    ],
)
def test_archives_that_are_something_else(publish: Any, changes: dict[str, Any], message: str) -> None:
    publish("ogbn-arxiv", {"arxiv.zip": archive("ogbn-arxiv", **changes)})
    with pytest.raises(ValueError, match=message):
        datasets.load("ogbn-arxiv")


def test_not_a_zip_archive(publish: Any) -> None:
    publish("ogbn-arxiv", {"arxiv.zip": b"?"})
    with pytest.raises(DatasetError, match="is not the archive of an OGB data set"):
        datasets.load("ogbn-arxiv")
