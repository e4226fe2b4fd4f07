"""What holds for every reader: all edges in order, from the beginning and from behind any chunk; where an edge is."""

from __future__ import annotations

import gzip
import sys

import numpy as np
import pytest

from dorylax.graph.stream.lines import Names
from dorylax.graph.stream.readers.base import Wanted, roles
from dorylax.graph.stream.readers.choose import open_reader
from dorylax.graph.validate import GraphError

EDGES = np.random.default_rng(0).integers(0, 50, (2, 400))
WEIGHT = np.arange(400) / 4
FORMATS = ("text", "gzip", "npy", "npy of columns", "npz", "npz of two", "parquet")


def _file(folder, kind):
    text = "".join(f"{u} {v} {w}\n" for u, v, w in zip(*EDGES, WEIGHT, strict=True)).encode()
    if kind == "text":
        (folder / "e.txt").write_bytes(b"\xef\xbb\xbf# comment\n" + text)
        return folder / "e.txt"
    if kind == "gzip":
        (folder / "e.txt.gz").write_bytes(gzip.compress(text[: len(text) // 2]) + gzip.compress(text[len(text) // 2 :]))
        return folder / "e.txt.gz"
    if kind.startswith("npy"):
        np.save(folder / "e.npy", EDGES if kind == "npy" else EDGES.T)
        return folder / "e.npy"
    if kind == "npz":
        np.savez_compressed(folder / "e.npz", edge_index=EDGES, weight=WEIGHT)
        return folder / "e.npz"
    if kind == "npz of two":
        np.savez(folder / "e.npz", sources=EDGES[0], targets=EDGES[1], weight=WEIGHT)
        return folder / "e.npz"
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"source": EDGES[0], "target": EDGES[1], "weight": WEIGHT}
    pq.write_table(pa.table(columns), folder / "e.parquet", row_group_size=90)
    return folder / "e.parquet"


def _reader(path, kind, **options):
    columns = ("source", "target", "weight") if kind in ("text", "gzip") else None
    values = None if kind.startswith("npy") else {"weight": np.dtype(np.float64)}
    return open_reader(path, Wanted(columns=columns, values=values, piece=600, **options))


@pytest.mark.parametrize("kind", FORMATS)
def test_all_edges_from_anywhere(tmp_path, kind):
    path = _file(tmp_path, kind)
    reader = _reader(path, kind)
    chunks = list(reader.chunks())
    assert len(chunks) > 3
    states = [None, *(chunk.state for chunk in chunks)]
    first = 0
    for number, state in enumerate(states):
        rest = list(reader.chunks(state))
        assert sum(chunk.size for chunk in rest) == 400 - first
        if rest:
            np.testing.assert_array_equal(np.concatenate([chunk.sources for chunk in rest]), EDGES[0, first:])
            np.testing.assert_array_equal(np.concatenate([chunk.targets for chunk in rest]), EDGES[1, first:])
        if rest and not kind.startswith("npy"):
            found = np.concatenate([chunk.values["weight"] for chunk in rest])
            np.testing.assert_array_equal(found, WEIGHT[first:])
        first += chunks[number].size if number < len(chunks) else 0
    assert chunks[-1].read == path.stat().st_size or kind.startswith("npy") or kind == "gzip"


@pytest.mark.parametrize("kind", FORMATS)
def test_how_many_edges_there_are_about(tmp_path, kind):
    assert 380 <= _reader(_file(tmp_path, kind), kind).estimate() <= 420


@pytest.mark.parametrize("kind", FORMATS)
def test_where_an_edge_is(tmp_path, kind):
    path = _file(tmp_path, kind)
    chunk = list(_reader(path, kind).chunks())[1]
    first = int(np.flatnonzero(EDGES[0] == chunk.sources[3])[0])
    said = chunk.where(3)
    assert said.startswith(f"{path}, ")
    assert first < 400
    position = int("".join(c for c in said.removeprefix(f"{path}, ").partition(":")[0] if c.isdigit()))
    offset = {"text": 2, "gzip": 1}.get(kind, 0)
    np.testing.assert_array_equal(EDGES[:, position - offset], [chunk.sources[3], chunk.targets[3]])


@pytest.mark.parametrize("kind", FORMATS)
def test_integers_as_names(tmp_path, kind):
    chunk = next(_reader(_file(tmp_path, kind), kind, ids="names").chunks())
    assert isinstance(chunk.sources, Names)
    assert [chunk.sources.name(k) for k in range(5)] == list(map(str, EDGES[0, :5]))


def test_columns_by_name(tmp_path):
    path = tmp_path / "e.csv"
    path.write_text('# c\n"when",target,source,w\n5,1,0,2.5\n6,2,1,3.5\n')
    (chunk,) = open_reader(path, Wanted(header=True, values={"w": None})).chunks()
    assert (chunk.sources.tolist(), chunk.targets.tolist(), chunk.values["w"].tolist()) == ([0, 1], [1, 2], [2.5, 3.5])
    assert chunk.where(1) == f"{path}, line 4: '6,2,1,3.5'"
    (chunk,) = open_reader(path, Wanted(header=True, source="when", values={})).chunks()
    assert (chunk.sources.tolist(), dict(chunk.values)) == ([5, 6], {})


@pytest.mark.parametrize(
    ("names", "wanted", "message"),
    [
        (("a", "a"), Wanted(), "two columns are called 'a'"),
        (("a",), Wanted(), "has 1 column: edges have a source and a target"),
        (("a", "b"), Wanted(target="a"), "sources and targets are both column 'a'"),
        (("a", "b"), Wanted(values={"bb": None}), "has no column 'bb': did you mean b?"),
    ],
)
def test_roles_of_columns(tmp_path, names, wanted, message):
    with pytest.raises(GraphError, match=message):
        roles(tmp_path, names, wanted)


@pytest.mark.parametrize(
    ("arrays", "wanted", "message"),
    [
        ({"x": np.zeros(3)}, Wanted(), r"has no array sources: choose from x"),
        ({"edge_index": np.zeros((3, 4), int)}, Wanted(), r"edge_index has shape \[3, 4\], expected \[2, 4\]"),
        (
            {"sources": np.zeros(3, int), "targets": np.zeros(4, int)},
            Wanted(),
            r"targets has shape \[4\], expected \[3\]",
        ),
        ({"sources": np.zeros(3), "targets": np.zeros(3, int)}, Wanted(), "sources must hold integers, got float64"),
        ({"edge_index": np.array([["a"], ["b"]])}, Wanted(), "must hold integers, got <U1: --ids names if vertices"),
        ({"edge_index": np.array([[2**63], [1]], np.uint64)}, Wanted(ids="integers"), "which does not fit int64"),
        (
            {"edge_index": np.zeros((2, 3), int), "w": np.array(["a", "b", "c"])},
            Wanted(values={"w": None}),
            "w must be real numbers, got <U1",
        ),
        ({"edge_index": np.zeros((2, 3), int), "w": np.zeros((3, 0))}, Wanted(values={"w": None}), "at least one"),
        ({"edge_index": np.asfortranarray(np.zeros((2, 3), int))}, Wanted(), "edge_index is stored by columns"),
    ],
)
def test_archives_that_hold_no_edges(tmp_path, arrays, wanted, message):
    np.savez(tmp_path / "e.npz", **arrays)
    with pytest.raises(GraphError, match=message):
        list(open_reader(tmp_path / "e.npz", wanted).chunks())


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(4, int), r"must be edges \[E, 2\] or \[2, E\], got int64 \[4\]"),
        (np.zeros((2, 2), int), r"is \[2, 2\], which may be"),
        (np.zeros((3, 2)), "must hold integers, got float64"),
    ],
)
def test_arrays_that_are_no_edges(tmp_path, array, message):
    np.save(tmp_path / "e.npy", array)
    with pytest.raises(GraphError, match=message):
        list(open_reader(tmp_path / "e.npy", Wanted()).chunks())


def test_a_line_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["dorylax.graph.stream.readers.text"], "_LONGEST", 1000)
    (tmp_path / "e.txt").write_bytes(b"1 2\n" + b"3" * 5000)
    with pytest.raises(GraphError, match=r"e\.txt has a line of more than 1,000 bytes: is it text\?"):
        list(open_reader(tmp_path / "e.txt", Wanted(piece=100)).chunks())
