from __future__ import annotations

import collections
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from support.allocations import allocating_less_than

from dorylax.graph.datasets import DatasetError, legacy_pickle
from dorylax.graph.datasets.legacy_pickle import SparseRows


def stored(tmp_path: Path, body: bytes) -> Path:
    file = tmp_path / "pickle"
    file.write_bytes(body)
    return file


@pytest.mark.parametrize("protocol", [0, 1, 2])
def test_reads_what_the_files_hold(tmp_path: Path, protocol: int) -> None:
    lists = collections.defaultdict(list, {0: [1, 2], 1: [0]})
    assert legacy_pickle.load(stored(tmp_path, pickle.dumps(lists, protocol))) == lists
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    assert np.array_equal(legacy_pickle.load(stored(tmp_path, pickle.dumps(array, protocol))), array)
    rows = legacy_pickle.load(stored(tmp_path, pickle.dumps(csr_matrix(array), protocol)))
    assert isinstance(rows, SparseRows)
    assert np.array_equal(rows.arrays["data"], [1, 2, 3, 4, 5])


def test_reads_an_array_as_python_2_wrote_it(tmp_path: Path) -> None:
    # Protocol 2 of Python 2: its bytes are `str`, opcode U; those of the array are 01 00 … ff ff, not ASCII.
    body = (
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01K\x02\x85cnumpy\ndtype\nU\x02i4K\x00K\x01\x87R(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        b"\x89U\x08\x01\x00\x00\x00\xfe\xff\xff\xfftb."
    )
    assert legacy_pickle.load(stored(tmp_path, body)).tolist() == [1, -2]


def test_reads_sparse_rows_under_their_former_name(tmp_path: Path) -> None:
    body = pickle.dumps(csr_matrix(np.eye(2)), 2).replace(b"scipy.sparse._csr", b"scipy.sparse.csr")
    assert b"scipy.sparse.csr\n" in body
    assert legacy_pickle.load(stored(tmp_path, body)).arrays["indices"].tolist() == [0, 1]


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
    with (
        allocating_less_than(1 << 26),
        pytest.raises(DatasetError, match=f"pickle is refused: .*{reason}"),
    ):
        legacy_pickle.load(stored(tmp_path, b"\x80\x02" + body))


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
        legacy_pickle.load(stored(tmp_path, body))
    assert [path.name for path in tmp_path.iterdir()] == ["pickle"]
