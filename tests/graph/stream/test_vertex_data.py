"""Arrays of vertices from files of several kinds, and what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from dorylax.graph.stream import vertex_rows
from dorylax.graph.stream.archive_writer import new_archive
from dorylax.graph.stream.vertex_data import VertexFiles, check_files, rows_said, write_vertex_data
from dorylax.graph.stream.vertex_rows import Rows
from dorylax.graph.validate import GraphError

FEATURES = np.arange(40).reshape(20, 2) / 3


def _file(folder, kind, array):
    if kind == "npy":
        np.save(folder / "a.npy", array)
        return folder / "a.npy"
    if kind == "npz":
        np.savez_compressed(folder / "a.npz", x=array)
        return Path(f"{folder / 'a.npz'}:x")
    text = "".join(" ".join(map(repr, row)) + "\n" for row in array.reshape(len(array), -1).tolist()).encode()
    path = folder / ("a.txt.gz" if kind == "gzip" else "a.txt")
    path.write_bytes(gzip.compress(text) if kind == "gzip" else text)
    return path


def _written(tmp_path, files, num_vertices=20):
    check_files(files)
    with new_archive(tmp_path / "out.npz") as archive:
        write_vertex_data(archive, files, num_vertices)
    with np.load(tmp_path / "out.npz") as found:
        return {name: found[name] for name in found.files if name != "checksums.json"}


@pytest.mark.parametrize("kind", ["npy", "npz", "text", "gzip"])
def test_rows_from_files(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(vertex_rows, "_PIECE", 10)
    path = _file(tmp_path, kind, FEATURES)
    found = _written(tmp_path, VertexFiles(features=path, inputs={"pos": path}))
    for name in ("features", "vertex_pos"):
        np.testing.assert_array_equal(found[name], FEATURES.astype(np.float32))
    np.testing.assert_array_equal(Rows.of(path).whole(), FEATURES)
    assert rows_said(VertexFiles(features=path)) == (20 if kind in ("npy", "npz") else None)


@pytest.mark.parametrize("kind", ["npy", "npz", "text"])
def test_labels_and_masks(tmp_path, kind):
    labels = np.arange(20) % 3
    folders = [tmp_path / name for name in ("labels", "train", "test")]
    for folder in folders:
        folder.mkdir()
    files = [
        _file(*one) for one in zip(folders, [kind] * 3, (labels, np.array([0, 5]), np.array([7, 9, 11])), strict=True)
    ]
    found = _written(tmp_path, VertexFiles(labels=files[0], masks={"train_mask": files[1], "test_mask": files[2]}))
    assert found["labels"].dtype == np.int32
    np.testing.assert_array_equal(found["labels"], labels)
    assert [np.flatnonzero(found[f"{name}_mask"]).tolist() for name in ("train", "val", "test")] == [
        [0, 5],
        [],
        [7, 9, 11],
    ]
    assert (int(found["num_classes"]), bool(found["multilabel"])) == (3, False)


@pytest.mark.parametrize(
    ("array", "kind", "message"),
    [
        (np.zeros((19, 2)), "npy", "features has 19 rows, expected 20"),
        (np.zeros((19, 2)), "text", "features has 19 rows, expected 20"),
        (np.zeros((21, 2)), "text", "features has more than 20 rows, expected 20"),
        (np.zeros(20), "npy", r"features must be real numbers \[V, F\], got float64 \['V'\]"),
        (np.full((20, 2), np.nan), "npy", r"features\[0, 0\] = nan is not finite"),
        (np.full((20, 2), 1e300), "text", r"features\[0, 0\] = inf is not finite"),
        (np.full((20, 2), "a"), "npy", r"a\.npy must hold real numbers, got <U1"),
    ],
)
def test_features_that_are_refused(tmp_path, array, kind, message):
    with pytest.raises(GraphError, match=message):
        _written(tmp_path, VertexFiles(features=_file(tmp_path, kind, array)))


def test_what_else_is_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((20, 2)))
    np.save(tmp_path / "b.npy", np.full(21, 2**40))
    np.save(tmp_path / "c.npy", np.full(20, 2**40))
    np.savez(tmp_path / "d.npz", x=np.zeros(3))
    (tmp_path / "e.txt").write_text("1 2\n3 x\n")
    one = {name: tmp_path / f"{name}.npy" for name in "abc"}
    for files, message in (
        (VertexFiles(features=one["a"], labels=one["b"]), "differ in their number of rows: features 20, labels 21"),
        (VertexFiles(inputs={"x": one["a"]}), "vertex_inputs has the name 'x', which models are called with"),
        (VertexFiles(inputs={"c": one["c"]}), "vertex_c holds 1099511627776, which int32 does not"),
        (
            VertexFiles(features=tmp_path / "d.npz"),
            r"d\.npz is an archive: say which of its arrays, as .*d\.npz:features",
        ),
        (VertexFiles(features=Path(f"{tmp_path / 'd.npz'}:y")), r"d\.npz has no array y: choose from x"),
        (VertexFiles(features=tmp_path / "e.txt"), r"e\.txt, line 2, has in column 2 not an integer"),
    ):
        with pytest.raises(GraphError, match=message):
            _written(tmp_path, files)
