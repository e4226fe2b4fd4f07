"""Sorting on disk: the order of a stable sort at any budget, going on after a kill, and damage."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from dorylax.graph.stream import external_sort
from dorylax.graph.stream.external_sort import ExternalSort
from dorylax.graph.validate import GraphError

INT32 = np.dtype(np.int32)
KEYS = npst.arrays(np.int64, st.integers(0, 400), elements=st.integers(-20, 20))


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    """Runs of a few records, so that there are many, and more than are merged at once."""
    monkeypatch.setattr(external_sort, "_FEWEST", 7)
    monkeypatch.setattr(os, "fsync", lambda _: None)  # of hundreds of files


def _read(sort):
    chunks = [(keys.copy(), None if values is None else values.copy()) for keys, values in sort.chunks()]
    assert all(len(keys) for keys, _ in chunks)
    keys = np.concatenate([keys for keys, _ in chunks] or [np.zeros(0, np.int64)])
    if chunks and chunks[0][1] is not None:
        return keys, np.concatenate([values for _, values in chunks])
    return keys, None


@settings(max_examples=60, deadline=None)
@given(KEYS, st.integers(1, 300), st.sampled_from([1, 2_000, 100_000]), st.integers(2, 5))
def test_the_order_is_that_of_a_stable_sort(tmp_path_factory, keys, chunk, memory, fan_in):
    values = np.arange(len(keys), dtype=np.int32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(external_sort, "_fan_in", lambda _: fan_in)
        with ExternalSort(tmp_path_factory.mktemp("sort"), INT32, memory=memory) as sort:
            for at in range(0, len(keys), chunk):
                sort.add(keys[at : at + chunk], values[at : at + chunk])
            first, second = _read(sort), _read(sort)
            assert sort.num_records == len(keys)
    order = np.argsort(keys, kind="stable")
    np.testing.assert_array_equal(first[0], keys[order])
    np.testing.assert_array_equal(first[1], values[order] if len(keys) else None)
    np.testing.assert_array_equal(second[0], first[0])


@settings(max_examples=30, deadline=None)
@given(KEYS, st.sampled_from([1, 3_000]))
def test_unique_keeps_the_first_of_equal_keys(tmp_path_factory, keys, memory):
    with ExternalSort(tmp_path_factory.mktemp("sort"), INT32, memory=memory, unique=True) as sort:
        sort.add(keys, np.arange(len(keys), dtype=np.int32))
        found = _read(sort)
    expected, first = np.unique(keys, return_index=True)
    np.testing.assert_array_equal(found[0], expected)
    np.testing.assert_array_equal(found[1], first if len(keys) else None)


def test_keys_alone_and_structured_values(tmp_path):
    keys = np.random.default_rng(0).integers(0, 50, 500)
    with ExternalSort(tmp_path / "keys", None, memory=1000) as sort:
        sort.add(keys)
        np.testing.assert_array_equal(_read(sort)[0], np.sort(keys))
    values = np.zeros(500, [("id", "<i4"), ("row", "<f4", (3,))])
    values["id"], values["row"] = np.arange(500), np.arange(1500).reshape(500, 3)
    with ExternalSort(tmp_path / "rows", values.dtype, memory=1000) as sort:
        sort.add(keys, values)
        np.testing.assert_array_equal(_read(sort)[1], values[np.argsort(keys, kind="stable")])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 200), st.integers(0, 20), st.tuples(*[st.integers(1, 40)] * 2), st.sampled_from([1, 800]))
def test_whoever_goes_on_adds_what_follows(tmp_path_factory, size, killed_after, chunks, memory):
    """A process is killed after some chunks; the next one goes on from `state`, in chunks of another size."""
    chunk, other_chunk = chunks
    folder = tmp_path_factory.mktemp("sort")
    keys = np.random.default_rng(size).integers(0, 30, size)
    values = np.arange(size, dtype=np.int32)
    with ExternalSort(folder, INT32, memory=memory) as sort:
        for at in range(0, min(size, chunk * killed_after), chunk):
            sort.add(keys[at : at + chunk], values[at : at + chunk], min(at + chunk, size))
        sort._wait()
    with ExternalSort(folder, INT32, memory=memory) as sort:
        for at in range(sort.state or 0, size, other_chunk):
            sort.add(keys[at : at + other_chunk], values[at : at + other_chunk], min(at + other_chunk, size))
            sort._wait()
    with ExternalSort(folder, INT32, memory=memory) as sort:
        start = sort.state or 0
        sort.add(keys[start:], values[start:], size)
        found = _read(sort)
        sort.remove()
    order = np.argsort(keys, kind="stable")
    np.testing.assert_array_equal(found[0], keys[order])
    np.testing.assert_array_equal(found[1], values[order] if size else None)
    assert not folder.exists()


def _sorted_runs(folder, number=4):
    with ExternalSort(folder, INT32, memory=1) as sort:
        keys = np.arange(7 * number)[::-1].copy()
        sort.add(keys, keys.astype(np.int32), "all")
        sort.finish()
    return keys


def test_a_kill_while_runs_are_merged(tmp_path):
    """Runs that were merged are there beside the one that replaces them, or half of that one is."""
    keys = _sorted_runs(tmp_path / "sort")
    shutil.copytree(tmp_path / "sort", tmp_path / "before")
    with ExternalSort(tmp_path / "sort", INT32, memory=1) as sort:
        assert [run.path("json").name for run in sort._runs] == [f"run-{k:06}-{k:06}.json" for k in range(4)]
        assert len(list(sort.chunks())) > 1
    for path in (tmp_path / "before").iterdir():
        if not (tmp_path / "sort" / path.name).exists():
            shutil.copy(path, tmp_path / "sort")
    (tmp_path / "sort" / "run-000007-000007.keys").write_bytes(b"half")
    with ExternalSort(tmp_path / "sort", INT32, memory=1) as sort:
        assert sort.state == "all"
        found = _read(sort)
    np.testing.assert_array_equal(found[0], np.sort(keys))
    np.testing.assert_array_equal(found[1], np.sort(keys))


@pytest.mark.parametrize("suffix", ["json", "keys", "values"])
def test_damaged_runs_are_named(tmp_path, suffix):
    _sorted_runs(tmp_path)
    path = tmp_path / f"run-000001-000001.{suffix}"
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(GraphError, match=rf"run-000001-000001\.{suffix} is damaged.*: remove .*, and begin again"):
        ExternalSort(tmp_path, INT32, memory=1)


def test_a_run_that_is_cut_off_while_it_is_read(tmp_path):
    _sorted_runs(tmp_path)
    with ExternalSort(tmp_path, INT32, memory=1) as sort:
        (tmp_path / "run-000001-000001.keys").write_bytes(b"")
        with pytest.raises(GraphError, match=r"run-000001-000001\.keys is cut off: remove"):
            _read(sort)


def test_memory_and_disk():
    size = ExternalSort.run_size(INT32, 48_000)
    assert size == 1000
    assert ExternalSort.disk_bytes(INT32, 1000, 48_000) == 12_000
    assert ExternalSort.disk_bytes(INT32, 3000, 48_000) == 72_000  # three runs, of which two are merged at once
