"""Folders of the Open Graph Benchmark, small and large ones."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from dorylax.graph.dataset import Dataset
from dorylax.graph.from_files.import_graph import import_graph
from dorylax.graph.from_files.sources import ogb_folder
from dorylax.graph.graph import Graph
from dorylax.graph.validate import GraphError

SOURCES, TARGETS = np.array([0, 3, 2, 2, 1]), np.array([1, 1, 0, 2, 3])
FEATURES = np.arange(10).reshape(5, 2) / 4
SPLIT = {"train": [0, 2], "valid": [3], "test": [1]}


def _table(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (",".join(map(str, np.atleast_1d(row))) for row in rows)
    path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))


def _folder(folder, *, large):
    for part, numbers in SPLIT.items():
        _table(folder / "split" / "time" / f"{part}.csv.gz", numbers)
    raw = folder / "raw"
    if large:
        raw.mkdir()
        edges = np.stack([SOURCES, TARGETS])
        np.savez(
            raw / "data.npz", edge_index=edges, node_feat=FEATURES.astype(np.float16), num_nodes_list=np.array([5])
        )
        np.savez_compressed(raw / "node-label.npz", node_label=np.array([[0.0], [1.0], [2.0], [1.0], [np.nan]]))
    else:
        _table(raw / "edge.csv.gz", np.stack([SOURCES, TARGETS], axis=1))
        _table(raw / "num-node-list.csv.gz", [5])
        _table(raw / "node-feat.csv.gz", FEATURES)
        _table(raw / "node-label.csv.gz", [0, 1, 2, 1, 0])
    return folder


@pytest.mark.parametrize("large", [False, True])
def test_a_data_set(tmp_path, large):
    folder = _folder(tmp_path / "ogb", large=large)
    import_graph([folder], tmp_path / "out", memory=2**29, symmetrise=True)
    data = Dataset.from_folder(tmp_path / "out")
    expected = Graph.from_coo(SOURCES, TARGETS, 5).symmetrise()
    np.testing.assert_array_equal(data.graph.incoming.neighbours, expected.incoming.neighbours)
    np.testing.assert_array_equal(data.features, FEATURES.astype(np.float32))
    assert data.labels.tolist() == [0, 1, 2, 1, -1 if large else 0]
    masks = [np.flatnonzero(mask).tolist() for mask in (data.train_mask, data.val_mask, data.test_mask)]
    assert masks == list(SPLIT.values())


def test_other_folders(tmp_path):
    assert ogb_folder(tmp_path) is None
    with pytest.raises(GraphError, match="is a folder: name the files in it"):
        import_graph([tmp_path], tmp_path / "out", memory=2**29)
    folder = _folder(tmp_path / "ogb", large=False)
    _table(folder / "split" / "random" / "train.csv.gz", [0])
    with pytest.raises(GraphError, match="has the splits random, time: keep the one to take"):
        ogb_folder(folder)
    _table(folder / "raw" / "num-node-list.csv.gz", [2, 3])
    with pytest.raises(GraphError, match="holds 2 graphs: expected a data set of one"):
        ogb_folder(folder)
