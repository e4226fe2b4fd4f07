"""cora and its like: the published files, and their pickles, in which nothing runs."""

from __future__ import annotations

import collections
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from support.allocations import allocating_less_than
from support.graphs import pairs

from dorylax.graph import datasets
from dorylax.graph.datasets import DatasetError, planetoid, registry
from dorylax.graph.datasets.planetoid import SparseRows

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
    both = [(0, 1), (0, 8), (2, 3), (5, 9)]
    assert sorted(pairs(data.graph)) == sorted([*both, *((v, u) for u, v in both), (2, 2)])


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
    found = datasets.Size(data.graph.num_vertices, data.graph.num_edges, data.num_features, data.num_classes)
    assert found == registry.PUBLISHED[name].size
    assert (data.train_mask.sum(), data.val_mask.sum(), data.test_mask.sum()) == (20 * data.num_classes, 500, 1000)
    assert (data.name, data.graph.symmetric, data.graph.self_loops) == (name, True, loops)
    assert np.bincount(data.labels[data.train_mask]).tolist() == [20] * data.num_classes


def stored(tmp_path: Path, body: bytes) -> Path:
    file = tmp_path / "pickle"
    file.write_bytes(body)
    return file


@pytest.mark.parametrize("protocol", [0, 1, 2])
def test_reads_what_the_pickles_hold(tmp_path: Path, protocol: int) -> None:
    lists = collections.defaultdict(list, {0: [1, 2], 1: [0]})
    assert planetoid.load(stored(tmp_path, pickle.dumps(lists, protocol))) == lists
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    assert np.array_equal(planetoid.load(stored(tmp_path, pickle.dumps(array, protocol))), array)
    rows = planetoid.load(stored(tmp_path, pickle.dumps(csr_matrix(array), protocol)))
    assert isinstance(rows, SparseRows)
    assert np.array_equal(rows.arrays["data"], [1, 2, 3, 4, 5])


def test_reads_an_array_as_python_2_wrote_it(tmp_path: Path) -> None:
    # Protocol 2 of Python 2: its bytes are `str`, opcode U; those of the array are 01 00 … ff ff, not ASCII.
    body = (
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01K\x02\x85cnumpy\ndtype\nU\x02i4K\x00K\x01\x87R(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        b"\x89U\x08\x01\x00\x00\x00\xfe\xff\xff\xfftb."
    )
    assert planetoid.load(stored(tmp_path, body)).tolist() == [1, -2]


def test_reads_sparse_rows_under_their_former_name(tmp_path: Path) -> None:
    body = pickle.dumps(csr_matrix(np.eye(2)), 2).replace(b"scipy.sparse._csr", b"scipy.sparse.csr")
    assert b"scipy.sparse.csr\n" in body
    assert planetoid.load(stored(tmp_path, body)).arrays["indices"].tolist() == [0, 1]


def _hexadecimal(times: int) -> bytes:
    """A text that is twice as long after each of so many calls."""
    body = b"X\x04\0\0\0aaaa"
    for _ in range(times):
        body = b"c_codecs\nencode\n(" + body + b"X\x03\0\0\0hextR"
    return body


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (_hexadecimal(40) + b".", "the encoding hex"),
        (b"cnumpy\nndarray\n(J\0\0\0@J\0\0\0@\x86tR.", "takes no arguments"),
        (b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nJ\0\0\0@\x85U\x01btR.", "before it has elements"),
        (b"\x80\x04\x8e" + (2**40).to_bytes(8, "little"), "(truncated|MemoryError)"),
    ],
)
def test_what_would_take_any_memory_is_refused(tmp_path: Path, body: bytes, reason: str) -> None:
    with allocating_less_than(1 << 26), pytest.raises(DatasetError, match=f"pickle is refused: .*{reason}"):
        planetoid.load(stored(tmp_path, b"\x80\x02" + body))


class Evil:
    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("made by the pickle",)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (pickle.dumps(Evil(), 2), "mkdir"),
        (pickle.dumps(np.array([Evil()], object), 2), "mkdir"),
        (b"cbuiltins\neval\n(S'1'\ntR.", "builtins.eval"),
        (b"cnumpy\nload\n(S'x'\ntR.", "numpy.load"),
        (b"\x80\x04\x8c\x0bcollections\x8c\x14defaultdict.__init__\x93.", "defaultdict.__init__"),
        (b"\x80\x02not a pickle", "refused"),
        (b"", "refused"),
    ],
)
def test_refuses_everything_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: bytes, reason: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DatasetError, match=reason):
        planetoid.load(stored(tmp_path, body))
    assert [path.name for path in tmp_path.iterdir()] == ["pickle"]
