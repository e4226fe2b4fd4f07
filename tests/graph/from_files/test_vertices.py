"""Arrays of vertices, keyed tables, and folders of the Open Graph Benchmark."""

from __future__ import annotations

import contextlib
import gzip
import os
from pathlib import Path

import duckdb
import numpy as np
import pytest
from support.stored import contents

from dorylax.graph.dataset import Dataset
from dorylax.graph.from_files.import_graph import import_graph
from dorylax.graph.from_files.sources import ogb_folder
from dorylax.graph.from_files.text import Wanted
from dorylax.graph.from_files.vertices import VertexFiles
from dorylax.graph.graph import Graph
from dorylax.graph.validate import GraphError

FEATURES = np.arange(40).reshape(20, 2) / 3


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)


def _imported(folder, files, edges="19 0\n", **options):
    (folder / "edges.txt").write_text(edges)
    import_graph([folder / "edges.txt"], folder / "out", memory=1 << 30, vertices=files, **options)
    return contents(folder / "out")


def _file(folder, kind, array, name="a"):
    if kind == "npy":
        np.save(folder / f"{name}.npy", array)
        return folder / f"{name}.npy"
    if kind == "npz":
        np.savez_compressed(folder / f"{name}.npz", x=array)
        return Path(f"{folder / f'{name}.npz'}:x")
    rows = array.reshape(len(array), -1).tolist()
    if kind in ("parquet", "jsonl"):
        path = folder / f"{name}.{kind}"
        with duckdb.connect() as database:
            database.register("arrays", {f"c{k}": np.array(column) for k, column in enumerate(zip(*rows, strict=True))})
            database.execute(f"COPY arrays TO '{path}' (FORMAT {kind.removesuffix('l')})")
        return path
    text = "".join(" ".join(map(repr, row)) + "\n" for row in rows).encode()
    path = folder / (f"{name}.txt.gz" if kind == "gzip" else f"{name}.txt")
    path.write_bytes(gzip.compress(text) if kind == "gzip" else text)
    return path


@pytest.mark.parametrize("kind", ["npy", "npz", "text", "gzip", "parquet", "jsonl"])
def test_rows_from_files(tmp_path, kind):
    path = _file(tmp_path, kind, FEATURES)
    found = _imported(tmp_path, VertexFiles(features=path, inputs={"pos": path}))
    for name in ("features", "vertex_pos"):
        np.testing.assert_array_equal(found[name], FEATURES.astype(np.float32))


def test_whole_numbers_before_fractions(tmp_path):
    (tmp_path / "f.txt").write_text("1 2\n3.5 4\n5 6\n")
    (tmp_path / "l.txt").write_text("0\n1\n1\n")
    found = _imported(tmp_path, VertexFiles(features=tmp_path / "f.txt", labels=tmp_path / "l.txt"), "0 1\n1 2\n")
    assert found["features"].tolist() == [[1, 2], [3.5, 4], [5, 6]]
    assert found["labels"].tolist() == [0, 1, 1]


@pytest.mark.parametrize("kind", ["npy", "npz", "text"])
def test_labels_and_masks(tmp_path, kind):
    labels = np.arange(20) % 3
    arrays = {"labels": labels, "train": np.array([0, 5]), "test": np.array([7, 9, 11])}
    files = {name: _file(tmp_path, kind, array, name) for name, array in arrays.items()}
    masks = {"train_mask": files["train"], "test_mask": files["test"]}
    found = _imported(tmp_path, VertexFiles(labels=files["labels"], masks=masks))
    assert found["labels"].dtype == np.int32
    np.testing.assert_array_equal(found["labels"], labels)
    assert [np.flatnonzero(found[f"{name}_mask"]).tolist() for name in ("train", "val", "test")] == [
        [0, 5],
        [],
        [7, 9, 11],
    ]
    assert (int(found["num_classes"]), bool(found["multilabel"])) == (3, False)


NAMED = "ann bob\nbob cem\ncem #1\n"
"""Names in the order ann, bob, cem, #1."""
ROWS = ("cem,27,0.5,tea", "bob,45,1.5,rum", "#1,9,2.5,", "dee,8,3.5,tea", "ann,31,4.5,tea")
TABLE = {
    "csv": "\n".join(("name,age,sport,topic", *ROWS)),
    "tsv": "\n".join(("name,age,sport,topic", *ROWS)).replace(",", "\t"),
}


@pytest.mark.parametrize("kind", [*TABLE, "parquet", "jsonl", "csv.gz"])
def test_tables_are_joined_by_key(tmp_path, kind):
    """Rows are in another order than the vertices; a vertex without edges comes last; a label that is missing is none.

    Features are the columns that nothing else takes.
    """
    path = tmp_path / f"table [1]*.{kind}"  # no pattern
    content = TABLE.get(kind, TABLE["csv"])
    if kind in TABLE or kind == "csv.gz":
        path.write_bytes(gzip.compress(content.encode()) if kind == "csv.gz" else content.encode())
    else:
        (tmp_path / "table.csv").write_text(content)
        with duckdb.connect() as database:
            table = f"read_csv('{tmp_path / 'table.csv'}', header = true, comment = '')"
            database.execute(f"COPY (SELECT * FROM {table}) TO '{tmp_path / 'to'}' (FORMAT {kind.removesuffix('l')})")
        (tmp_path / "to").rename(path)
    (tmp_path / "train.csv").write_text("name\nann\ncem\n")
    (tmp_path / "val.csv").write_text("name,is_val\nbob,true\nann,false\n")
    files = VertexFiles(
        features=path,
        labels=Path(f"{path}:topic"),
        masks={"train_mask": tmp_path / "train.csv", "val_mask": tmp_path / "val.csv"},
        inputs={"age": Path(f"{path}:age")},
        key="name",
    )
    found = _imported(tmp_path, files, NAMED, wanted=Wanted(ids="names", comments=""))
    assert found["original_ids"].tolist() == [b"ann", b"bob", b"cem", b"#1", b"dee"]
    assert found["features"].tolist() == [[4.5], [1.5], [0.5], [2.5], [3.5]]
    assert found["labels"].tolist() == [1, 0, 1, -1, 1]
    assert found["class_names"].tolist() == [b"rum", b"tea"]
    assert np.flatnonzero(found["train_mask"]).tolist() == [0, 2]
    assert np.flatnonzero(found["val_mask"]).tolist() == [1]
    assert found["vertex_age"].tolist() == [[31], [45], [27], [9], [8]]


@pytest.mark.parametrize("ids", ["numbers", "integers"])
def test_keys_that_are_integers(tmp_path, ids):
    (tmp_path / "t.csv").write_text("id,x\n2,0.5\n0,1.5\n1,2.5\n3,7\n")
    files = VertexFiles(features=tmp_path / "t.csv", key="id")
    found = _imported(tmp_path, files, "0 1\n1 2\n", wanted=Wanted(ids=ids))
    assert found["features"].tolist() == [[1.5], [2.5], [0.5], [7]]


@pytest.mark.parametrize(
    ("content", "columns", "names"),
    [
        ("name,red,blue\nann,1,0\nbob,1,1\n", "", [b"red", b"blue"]),
        ("name,red,blue\nann,1,0\nbob,1,1\n", ":blue,red", [b"blue", b"red"]),
        ('{"name": "ann", "red": 1, "é": 1}\n{"name": "bob", "red": 0, "é": 1}\n', "", [b"red", "é".encode()]),
    ],
)
def test_columns_of_several_classes_keep_their_names(tmp_path, content, columns, names):
    table = tmp_path / ("t.jsonl" if content.startswith("{") else "t.csv")
    table.write_text(content)
    files = VertexFiles(labels=Path(f"{table}{columns}"), multilabel=True, key="name")
    found = _imported(tmp_path, files, "ann bob\n", wanted=Wanted(ids="names"))
    assert found["class_names"].tolist() == names


def test_columns_without_names_or_of_targets_name_no_classes(tmp_path):
    (tmp_path / "rows.txt").write_text("1 0\n1 1\n")
    assert "class_names" not in _imported(tmp_path, VertexFiles(labels=tmp_path / "rows.txt", multilabel=True), "0 1\n")
    (tmp_path / "targets.csv").write_text("a,b\n1.5,0\n1,1\n")
    assert "class_names" not in _imported(tmp_path, VertexFiles(labels=tmp_path / "targets.csv"), "0 1\n")


def test_a_default_split_is_announced(tmp_path):
    (tmp_path / "t.csv").write_text("y\n1\n0\n")
    (tmp_path / "m.txt").write_text("1\n0\n")
    for files, said in (
        (VertexFiles(labels=tmp_path / "t.csv"), True),
        (VertexFiles(labels=tmp_path / "t.csv", masks={"val_mask": tmp_path / "m.txt"}), False),
        (VertexFiles(features=tmp_path / "t.csv"), False),
    ):
        told = []
        with contextlib.suppress(GraphError):  # a mask for validation alone
            _imported(tmp_path, files, "0 1\n", expected=told.append)
        assert any(one.startswith("no masks: training splits the labelled") for one in told[0].detected) == said


BAD_TABLES = {
    "no key": ("names,x\nann,1\n", {}, r"t\.csv has no column 'name': did you mean names"),
    "twice": ("name,x\nann,1\nbob,2\nann,3\n", {}, r"t\.csv has 'ann' twice in column name: give each vertex one row"),
    "absent": ("name,x\nann,1\nbob,2\n", {}, r"t\.csv has no row for vertex 'cem' \(name\): add one for each vertex"),
    "empty key": ("name,x\nann,1\n,2\n", {}, r"row 2, has in column name not a name"),
    "no number": ("name,x\nann,1\nbob,q\n", {}, r"row 2, has in column x not a number: 'q'"),
    "missing": ("name,x\nann,1\nbob,\n", {}, r"row 2, has in column x not a number: None"),
    "no columns": ("name\nann\n", {}, r"t\.csv has no column for features"),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_tables_that_are_refused(tmp_path, case):
    content, options, message = BAD_TABLES[case]
    (tmp_path / "t.csv").write_text(content)
    files = VertexFiles(features=tmp_path / "t.csv", key="name", **options)
    with pytest.raises(GraphError, match=message):
        _imported(tmp_path, files, "ann bob\nbob cem\n", wanted=Wanted(ids="names"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("array", "kind", "message"),
    [
        (np.zeros((19, 2)), "npy", "source 19 is out of range"),
        (np.zeros((21, 2)), "text", None),
        (np.zeros(20), "npy", r"features must be real numbers \[V, F\], got float64 \['V'\]"),
        (np.full((20, 2), np.nan), "npy", r"features\[0, 0\] = nan is not finite"),
        (np.full((20, 2), 1e300), "text", r"features\[0, 0\] = inf is not finite"),
        (np.full((20, 2), "a"), "npy", r"a\.npy must hold real numbers, got <U1"),
    ],
)
def test_features_that_are_refused(tmp_path, array, kind, message):
    files = VertexFiles(features=_file(tmp_path, kind, array))
    if message is None:
        assert _imported(tmp_path, files)["features"].shape == array.shape
        return
    with pytest.raises(GraphError, match=message):
        _imported(tmp_path, files)


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
        (VertexFiles(features=tmp_path / "d.npz"), r"d\.npz is an archive: say which of its arrays, as .*:features"),
        (VertexFiles(features=Path(f"{tmp_path / 'd.npz'}:y")), r"d\.npz: has no array y: choose from x"),
        (VertexFiles(features=tmp_path / "e.txt"), r"e\.txt, row 2, has in column 1 not a number: 'x'"),
        (VertexFiles(features=one["a"], key="name"), r"a\.npy has no column 'name' to join by \(--key\)"),
    ):
        with pytest.raises(GraphError, match=message):
            _imported(tmp_path, files)


SOURCES, TARGETS = np.array([0, 3, 2, 2, 1]), np.array([1, 1, 0, 2, 3])
OGB_FEATURES = np.arange(10).reshape(5, 2) / 4
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
            raw / "data.npz", edge_index=edges, node_feat=OGB_FEATURES.astype(np.float16), num_nodes_list=np.array([5])
        )
        np.savez_compressed(raw / "node-label.npz", node_label=np.array([[0.0], [1.0], [2.0], [1.0], [np.nan]]))
    else:
        _table(raw / "edge.csv.gz", np.stack([SOURCES, TARGETS], axis=1))
        _table(raw / "num-node-list.csv.gz", [5])
        _table(raw / "node-feat.csv.gz", OGB_FEATURES)
        _table(raw / "node-label.csv.gz", [0, 1, 2, 1, 0])
    return folder


@pytest.mark.parametrize("large", [False, True])
def test_a_data_set(tmp_path, large):
    folder = _folder(tmp_path / "ogb", large=large)
    import_graph([folder], tmp_path / "out", memory=2**29, symmetrise=True)
    data = Dataset.from_folder(tmp_path / "out")
    expected = Graph.from_coo(SOURCES, TARGETS, 5).symmetrise()
    np.testing.assert_array_equal(data.graph.incoming.neighbours, expected.incoming.neighbours)
    np.testing.assert_array_equal(data.features, OGB_FEATURES.astype(np.float32))
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
