"""Passes over rows, span by span, counting sorts, and hashes of edges against whole-array NumPy."""

from __future__ import annotations

import threading
from itertools import chain

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dorylax.graph import Graph, compressed, rows
from dorylax.graph.rows import compress, transposed_positions

FEW = settings(max_examples=50, deadline=None)

DEGREES = st.lists(st.integers(0, 5), min_size=1, max_size=12)


def _offsets(degrees: list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)


@FEW
@given(DEGREES, st.data())
def test_rows_between_is_a_slice_of_all_rows(degrees, data):
    offsets = _offsets(degrees)
    total = int(offsets[-1])
    start = data.draw(st.integers(0, max(0, total - 1)))
    stop = data.draw(st.integers(min(start + 1, total), total))
    everything = np.repeat(np.arange(len(degrees)), degrees)
    np.testing.assert_array_equal(rows.all_rows(offsets), everything)
    np.testing.assert_array_equal(rows.rows_between(offsets, start, stop), everything[start:stop])


def test_rows_between_past_two_to_the_31():
    offsets = np.array([0, 2**31 - 1, 2**31 + 3, 2**33, 2**33, 2**33 + 5])
    assert rows.rows_between(offsets, 2**31 - 2, 2**31 + 5).tolist() == [0, 1, 1, 1, 1, 2, 2]
    assert rows.rows_between(offsets, 2**33 - 1, 2**33 + 2).tolist() == [2, 4, 4]


@FEW
@given(DEGREES, st.data())
def test_loops_counts_and_first_of_equals(degrees, data):
    offsets, v = _offsets(degrees), len(degrees)
    ids = [sorted(data.draw(st.lists(st.integers(0, v - 1), min_size=d, max_size=d))) for d in degrees]
    neighbours = np.array(list(chain(*ids)), np.int32)
    owner = rows.all_rows(offsets)
    with pytest.MonkeyPatch.context() as patch:
        whole = rows.spans
        patch.setattr(rows, "spans", lambda total, size=3: whole(total, 3))  # many spans, cutting through rows
        np.testing.assert_array_equal(
            rows.positions_where(np.equal, offsets, neighbours), np.flatnonzero(owner == neighbours)
        )
        looped = [v in row for v, row in enumerate(ids)]
        np.testing.assert_array_equal(rows.rows_with_loops(offsets, neighbours), looped)
        np.testing.assert_array_equal(rows.count_values(neighbours, v), np.bincount(neighbours, minlength=v))
    keep = rows.first_of_equals(offsets, neighbours)
    kept = [sorted(set(row)) for row in ids]
    assert neighbours[keep].tolist() == list(chain(*kept))
    dropped = np.flatnonzero(~keep)
    np.testing.assert_array_equal(rows.offsets_without(offsets, dropped), _offsets([len(row) for row in kept]))


def test_an_error_is_raised_in_its_place_and_nothing_more_is_begun() -> None:
    begun = []

    def work(item: int) -> int:
        begun.append(item)
        return 1 // (item - 3)

    results = rows.in_order(work, range(1000), 2)
    assert [next(results) for _ in range(3)] == [-1, -1, -1]
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert max(begun) < 10
    assert not [thread for thread in threading.enumerate() if "ThreadPool" in thread.name]


PAIRS = st.integers(1, 9).flatmap(
    lambda v: st.tuples(st.just(v), st.lists(st.tuples(st.integers(0, v - 1), st.integers(0, v - 1)), max_size=40))
)


def _arrays(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    both = np.array(pairs, np.int32).reshape(-1, 2)
    return both[:, 0].copy(), both[:, 1].copy()


@FEW
@given(PAIRS, st.integers(1, 12))
def test_transposed_positions_of_symmetric_rows_span_by_span(case, span):
    v, pairs = case
    sources, targets = _arrays(pairs)
    offsets, neighbours, _ = compress(np.concatenate([sources, targets]), np.concatenate([targets, sources]), v)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dorylax.graph.rows.SPAN", span)
        positions = transposed_positions(offsets, neighbours)
    assert positions.dtype == np.int32
    np.testing.assert_array_equal(positions, np.argsort(neighbours, kind="stable"))


SMALL_PAIRS = st.integers(1, 5).flatmap(
    lambda v: st.tuples(st.just(v), st.lists(st.tuples(st.integers(0, v - 1), st.integers(0, v - 1)), max_size=12))
)


@FEW
@given(SMALL_PAIRS, st.booleans())
@example((3, [(0, 1), (1, 2), (2, 0)]), False)  # as many in-edges as out-edges at each vertex
def test_symmetry_and_self_loops_are_those_of_the_matrix(case, both_ways):
    v, pairs = case
    if both_ways:
        pairs = pairs + [(b, a) for a, b in pairs]
    matrix = np.zeros((v, v), int)
    for source, target in pairs:
        matrix[target, source] += 1
    graph = Graph.from_coo([a for a, _ in pairs], [b for _, b in pairs], v)
    assert graph.symmetric == (matrix == matrix.T).all()
    loops = matrix.diagonal() > 0
    assert graph.self_loops == ("all" if loops.all() else "some" if loops.any() else "none")


EDGES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=20)


def _hashes(edges: list[tuple[int, int]]) -> tuple[int, int]:
    pairs = np.array(edges, np.int64).reshape(-1, 2)
    rows = Graph.from_coo(pairs[:, 0], pairs[:, 1], 6).incoming
    return compressed.edge_fingerprint(rows.offsets, rows.neighbours)


@given(EDGES, EDGES)
def test_equal_multisets_and_only_these_have_equal_hashes_in_spans_of_any_length(edges, others):
    assert (_hashes(edges) == _hashes(others)) == (sorted(edges) == sorted(others))
    assert _hashes([(v, u) for u, v in edges]) == _hashes(edges)[::-1]
    whole = _hashes(edges)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compressed, "_HASHED_SPAN", 5)
        assert _hashes(edges) == whole
