"""Counting sorts against NumPy's stable lexsort."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dorylax.graph.transpose import compress, transpose

FEW = settings(max_examples=50, deadline=None)

PAIRS = st.integers(1, 9).flatmap(
    lambda v: st.tuples(st.just(v), st.lists(st.tuples(st.integers(0, v - 1), st.integers(0, v - 1)), max_size=40))
)


def _arrays(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    both = np.array(pairs, np.int32).reshape(-1, 2)
    return both[:, 0].copy(), both[:, 1].copy()


@FEW
@given(PAIRS)
def test_compress_sorts_by_target_then_source_and_keeps_equal_edges_in_order(case):
    v, pairs = case
    sources, targets = _arrays(pairs)
    offsets, by_target, positions = compress(sources, targets, v)
    expected = np.lexsort((sources, targets))  # stable
    np.testing.assert_array_equal(positions, expected)
    np.testing.assert_array_equal(by_target, sources[expected])
    np.testing.assert_array_equal(np.diff(offsets), np.bincount(targets, minlength=v))
    assert (offsets.dtype, by_target.dtype, positions.dtype) == (np.int64, np.int32, np.int32)


@FEW
@given(PAIRS)
def test_compress_without_positions_gives_the_same_rows(case):
    v, pairs = case
    sources, targets = _arrays(pairs)
    plain, full = compress(sources, targets, v, with_positions=False), compress(sources, targets, v)
    np.testing.assert_array_equal(plain[0], full[0])
    np.testing.assert_array_equal(plain[1], full[1])


@FEW
@given(PAIRS)
def test_transpose_is_a_stable_sort_by_column(case):
    v, pairs = case
    offsets, neighbours, _ = compress(*_arrays(pairs), v)
    rows = np.repeat(np.arange(v), np.diff(offsets))
    out_offsets, out_neighbours, edges = transpose(offsets, neighbours, v)
    np.testing.assert_array_equal(edges, np.argsort(neighbours, kind="stable"))
    np.testing.assert_array_equal(out_neighbours, rows[edges])
    np.testing.assert_array_equal(np.diff(out_offsets), np.bincount(neighbours, minlength=v))


def test_transpose_of_rectangular_rows():
    offsets, neighbours, edges = transpose(np.array([0, 2, 3]), np.array([4, 1, 4], np.int32), 5)
    assert offsets.tolist() == [0, 0, 1, 1, 1, 3]
    assert neighbours.tolist() == [0, 0, 1]
    assert edges.tolist() == [1, 0, 2]


def test_arguments_are_only_read():
    arrays = [np.array([0, 2, 3]), np.array([1, 0, 1], np.int32)]
    for array in arrays:
        array.flags.writeable = False
    transpose(*arrays, 2)
    compress(arrays[1], arrays[1], 2)
    assert arrays[1].tolist() == [1, 0, 1]
