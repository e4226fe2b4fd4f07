"""Sorting and merging in memory: stable, of keys of either sign and values of any size, natively and by NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from dorylax.graph.stream import native, sorting
from dorylax.graph.stream.sorting import Records, Sorter, empty_records, merge

DTYPES = (None, np.dtype(np.int32), np.dtype(np.int64), np.dtype([("a", "<i4"), ("b", "<f8")]), np.dtype("S5"))
NATIVE = pytest.param(True, marks=pytest.mark.skipif(native._load() is None, reason="no native library"))
KEYS = st.one_of(
    npst.arrays(np.int64, st.integers(0, 60), elements=st.integers(-3, 3)),
    npst.arrays(np.int64, st.integers(0, 60)),
    npst.arrays(np.int64, st.integers(0, 60), elements=st.sampled_from([0, 1 << 40, 1 << 62, (5 << 32) | 3, -1])),
)


@pytest.fixture(params=[NATIVE, False], ids=["native", "numpy"])
def by(request, monkeypatch):
    """Which of the two serves."""
    monkeypatch.setenv("DORYLAX_NATIVE", "" if request.param else "0")


def _records(keys, dtype):
    """Records whose values tell where each was."""
    if dtype is None:
        return Records(keys)
    places = np.arange(len(keys))
    if dtype.names is None:
        return Records(keys, places.astype(dtype))
    values = np.zeros(len(keys), dtype)
    values["a"], values["b"] = places, places / 2
    return Records(keys, values)


def _check(found, records):
    order = np.argsort(records.keys, kind="stable")
    np.testing.assert_array_equal(found.keys, records.keys[order])
    if records.values is not None:
        np.testing.assert_array_equal(found.values, records.values[order])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sorting_is_stable(by, dtype):
    sorter = Sorter(60, dtype)

    @given(KEYS)
    def check(keys):
        records = _records(keys, dtype)
        copy = Records(keys.copy(), None if records.values is None else records.values.copy())
        _check(sorter.sort(copy), records)

    check()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_merging_is_stable(by, monkeypatch, dtype):
    monkeypatch.setattr(sorting, "_WORTH_A_THREAD", 8)

    @given(st.lists(KEYS, min_size=1, max_size=5), st.integers(1, 3))
    def check(runs, threads):
        every = _records(np.concatenate(runs), dtype)
        parts, at = [], 0
        for keys in runs:
            part = every.part(at, at + len(keys))
            order = np.argsort(part.keys, kind="stable")
            parts.append(Records(part.keys[order], None if part.values is None else part.values[order]))
            at += len(keys)
        out = empty_records(at, dtype)
        merge(parts, out, threads)
        _check(out, every)

    check()


def test_large_runs(by):
    rng = np.random.default_rng(0)
    records = _records(rng.integers(0, 1 << 52, 300_000), np.dtype(np.int32))
    copy = Records(records.keys.copy(), records.values.copy())
    _check(Sorter(300_000, np.dtype(np.int32)).sort(copy), records)
