"""Rows that move through files come where those that move in memory do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylax.graph.reorder import permuted
from dorylax.graph.stream import moving
from dorylax.graph.stream.edge_rows import EdgeRows, Source
from dorylax.graph.stream.moving import Move, MovedEdges
from dorylax.graph.transpose import inverse_permutation
from dorylax.graph.validate import GraphError


@pytest.fixture(scope="module", autouse=True)
def small_blocks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moving, "BLOCK_BYTES", 64)
        patch.setattr(moving, "_BLOCK", 16)
        patch.setattr(moving, "_WORKING_BYTES", 256)
        patch.setattr("dorylax.graph.stream.edge_rows.BLOCK_BYTES", 64)
        yield


@given(st.data())
def test_vertices_rows(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 60))
    width = data.draw(st.sampled_from([(), (1,), (3,), (2, 2)]))
    order = np.array(data.draw(st.permutations(range(size))), np.int32)
    array = np.random.default_rng(0).random((size, *width)).astype(np.float32)
    folder = tmp_path_factory.mktemp("scratch")
    move = Move(order, folder, data.draw(st.integers(300, 5000)))
    parts = list(move.rows(Source.held(array)))
    np.testing.assert_array_equal(np.concatenate(parts), array[order])
    assert list(folder.iterdir()) == []


@given(st.data())
def test_edges_rows(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    size, num_edges = data.draw(st.integers(1, 40)), data.draw(st.integers(0, 150))
    order = np.array(data.draw(st.permutations(range(size))), np.int32)
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    degrees = rng.multinomial(num_edges, np.full(size, 1 / size))
    if num_edges:
        degrees[rng.integers(size)] += 30  # a hub, longer than a bucket
    offsets = np.concatenate([[0], np.cumsum(degrees)])
    neighbours = rng.integers(0, size, offsets[-1]).astype(np.int32)
    ascending = data.draw(st.booleans())
    if ascending:
        neighbours = np.concatenate([np.sort(row) for row in np.split(neighbours, offsets[1:-1])])
    values = rng.random((len(neighbours), 2))
    folder = tmp_path_factory.mktemp("scratch")
    room = data.draw(st.integers(800, 10_000))
    edges = MovedEdges(EdgeRows(Source.held(offsets), Source.held(neighbours)), Move(order, folder, room), 16)
    place = inverse_permutation(order)
    expected = permuted(offsets, neighbours, order, place)
    positions = permuted(offsets, neighbours, order, place, with_positions=True)[1]
    np.testing.assert_array_equal(np.concatenate(list(edges.offsets())), expected[0])
    edges.deal()
    empty = np.zeros(0, np.int32)
    np.testing.assert_array_equal(np.concatenate([empty, *edges.neighbours(keep=True)]), expected[1])
    np.testing.assert_array_equal(np.concatenate([values[:0], *edges.along(Source.held(values))]), values[positions])
    edges.close()
    assert list(folder.iterdir()) == []
    rows = np.split(neighbours, offsets[1:-1])
    assert edges.ascending == all((np.diff(row) >= 0).all() for row in rows)


def test_too_little_room_says_so(tmp_path: Path) -> None:
    move = Move(np.arange(5000, dtype=np.int32), tmp_path, 4 * 64 + 100)
    with pytest.raises(GraphError, match=r"would take 1,\d\d\d files at once, and at most 1,000 are opened: give more"):
        list(move.rows(Source.held(np.zeros((5000, 1), np.float32))))
