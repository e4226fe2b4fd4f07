"""Sizes without data."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import dorylax
from dorylax.config.schema import DataConfig
from dorylax.graph.compressed import SelfLoops
from dorylax.graph.data_shape import DataShape
from dorylax.graph.dataset import Dataset
from dorylax.graph.graph import Graph
from dorylax.graph.reordering import write_in_order
from dorylax.graph.stored import open_arrays
from dorylax.graph.validate import GraphError
from dorylax.memory.sources import shape_of


def stored(data: Dataset) -> DataShape:
    """Of a small archive of a data set."""
    training = int(data.train_mask.sum())
    return dataclasses.replace(DataShape.of(data), num_labelled=training, features_in="elsewhere", graph_in="elsewhere")


def test_generated() -> None:
    data = dorylax.load("communities", size="tiny")
    shape = shape_of(DataConfig(name="communities", size="tiny"))
    assert shape == dataclasses.replace(DataShape.of(data), origin="generated")
    large = shape_of(DataConfig(name="communities", size="friendster"))
    assert large is not None
    assert large.num_edges == 3_600_000_000


@pytest.mark.parametrize("self_loops", ["none", "some", "all"])
@pytest.mark.parametrize("directed", [False, True])
def test_an_archive_of_ours(tmp_path: Path, directed: bool, self_loops: SelfLoops) -> None:
    data = dorylax.load("communities", size="tiny")
    graph = Graph.from_coo(np.arange(999), np.arange(1, 1000), 1000) if directed else data.graph
    if self_loops != "none":
        looped = np.arange(1000 if self_loops == "all" else 7)
        targets = np.repeat(np.arange(1000), np.diff(graph.incoming.offsets))
        sources = np.concatenate([graph.incoming.neighbours, looped])
        graph = Graph.from_coo(sources, np.concatenate([targets, looped]), 1000)
    data = dataclasses.replace(data, graph=graph)
    assert graph.self_loops == self_loops
    data.save(tmp_path / "mine")
    shape = shape_of(DataConfig(name=str(tmp_path / "mine")))
    assert shape == stored(data)


@pytest.mark.parametrize("directed", [False, True])
def test_large_arrays_of_an_archive_of_ours_are_mapped(tmp_path: Path, directed: bool) -> None:
    """Rows by source of a directed graph are sorted into others."""
    data = dorylax.load("communities", num_vertices=10_000, num_edges=1_100_000, num_features=110)
    if directed:
        rng = np.random.default_rng(0)
        data = dataclasses.replace(data, graph=Graph.from_coo(*rng.integers(0, 10_000, (2, 1_100_000)), 10_000))
    data.save(tmp_path / "mine")
    shape = shape_of(DataConfig(name=str(tmp_path / "mine")))
    assert shape is not None
    loaded = DataShape.of(Dataset.from_folder(tmp_path / "mine"))
    assert shape.features_in == loaded.features_in == "mapped"
    assert shape.graph_in == ("elsewhere" if directed else "mapped")
    assert (loaded.graph_in == "mapped") == (not directed)


def test_an_archive_of_others(tmp_path: Path) -> None:
    """Wide indices and sparse features take more while they are converted, and nothing is said of direction."""
    path = tmp_path / "other.npz"
    arrays = {
        "indptr": np.array([0, 1, 2, 3]),
        "indices": np.array([1, 2, 0], np.int64),
        "labels": np.array([0, 4, 1]),
        "features_indptr": np.array([0, 1, 1, 2], np.int32),
        "features_indices": np.array([0, 6], np.int32),
        "features_data": np.array([1.0, 2.0]),
        "features_shape": np.array([3, 7]),
    }
    np.savez(path, **arrays)
    shape = shape_of(DataConfig(name=str(path)))
    assert shape == DataShape(3, 3, 7, 5, symmetric=False, stored_bytes=4 * 3 + (16 + 8 + 16))


@pytest.mark.parametrize("form", ["targets", "indicators", "further inputs", "a column of classes"])
def test_an_archive_of_other_forms(tmp_path: Path, form: str) -> None:
    data = dorylax.load("communities", size="tiny")
    changes = {
        "targets": {"labels": data.features[:, :5], "num_classes": None},
        "indicators": {"labels": data.features > 0, "num_classes": None, "multilabel": True},
        "further inputs": {"vertex_inputs": {"pos": np.ones((1000, 2, 3)), "id": np.arange(1000)}},
        "a column of classes": {"labels": data.labels[:, None]},
    }[form]
    data = dataclasses.replace(data, **changes)
    data.save(tmp_path / "mine")
    shape = shape_of(DataConfig(name=str(tmp_path / "mine")))
    assert shape == stored(data)


def test_what_loading_will_refuse_has_no_shape(tmp_path: Path) -> None:
    good = {
        "indptr": np.arange(3),
        "indices": np.array([1, 0]),
        "features": np.ones((2, 2)),
        "labels": np.array([0, 1]),
    }
    bad = {"indptr": np.zeros((3, 2)), "indices": np.array(1), "features": np.ones(2)}
    for name, array in bad.items():
        np.savez(tmp_path / "bad.npz", **{**good, name: array})
        assert shape_of(DataConfig(name=str(tmp_path / "bad.npz"))) is None, name


def test_published_and_unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DORYLAX_DATA", str(tmp_path))
    monkeypatch.setenv("DORYLAX_CACHE", str(tmp_path))
    assert shape_of(DataConfig(name="cora")) == DataShape(2708, 10_556, 1433, 7, origin="published")
    assert shape_of(DataConfig(name="corra")) is None
    assert shape_of(DataConfig(name="communities", size="huge")) is None
    np.savez(tmp_path / "cora.npz", indptr=np.zeros(3, np.int64))
    with pytest.raises(GraphError, match="has no array indices and no features"):
        shape_of(DataConfig(name="cora"))


def test_a_damaged_copy_in_the_cache_is_not_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DORYLAX_DATA", raising=False)
    monkeypatch.setenv("DORYLAX_CACHE", str(tmp_path))
    (tmp_path / "parsed-2/reddit").mkdir(parents=True)
    (tmp_path / "parsed-2/reddit/manifest.json").write_bytes(b"damaged")
    assert shape_of(DataConfig(name="reddit")) == DataShape(232_965, 114_615_892, 602, 41, origin="published")


def test_an_archive_in_a_memory_order(tmp_path: Path) -> None:
    data = dorylax.load("communities", size="tiny")
    order = np.random.default_rng(0).permutation(1000).astype(np.int32)
    data.save(tmp_path / "given")
    with open_arrays(tmp_path / "given") as archive:
        write_in_order(archive, order, tmp_path / "moved", room=2**24)
    shape = shape_of(DataConfig(name=str(tmp_path / "moved")))
    assert shape == stored(Dataset.from_folder(tmp_path / "moved"))
    assert shape.reordered


def test_masks_of_several_splits_and_data_without_labels(tmp_path: Path) -> None:
    usual = {"indptr": np.arange(5), "indices": np.zeros(4, np.int32), "features": np.eye(4)}
    file = str(tmp_path / "a.npz")
    np.savez(file, **usual, labels=np.arange(4), train_mask=np.array([[1, 1, 0, 0], [1, 1, 1, 0]], bool))
    shape = shape_of(DataConfig(name=file, split=1))
    assert shape is not None
    assert shape.num_labelled == 3
    with pytest.raises(GraphError, match="train_mask holds 2 splits: choose one"):
        shape_of(DataConfig(name=file))
    for classes, known in ((None, {}), (7, {"num_classes": 7})):
        np.savez(file, **usual, **known)
        shape = shape_of(DataConfig(name=file))
        assert shape is not None
        assert (shape.num_labelled, shape.num_classes) == (0, classes)
