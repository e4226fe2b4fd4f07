"""Whole rows in blocks, and what is wrong with rows."""

from __future__ import annotations

import numpy as np
import pytest
from support.graphs import messy_graph

from dorylax.graph.stream import edge_rows
from dorylax.graph.stream.edge_rows import EdgeRows
from dorylax.graph.stream.row_sources import HeldRows
from dorylax.graph.validate import GraphError


@pytest.mark.parametrize("entries", [1, 7, 64, 10_000])
@pytest.mark.parametrize("most", [1, 5, 1000])
def test_blocks_are_the_rows(monkeypatch: pytest.MonkeyPatch, entries: int, most: int) -> None:
    monkeypatch.setattr(edge_rows, "_ROWS", most)
    offsets, sources = messy_graph(40, 300).host_rows()
    rows = EdgeRows.of_arrays(offsets, sources)
    cuts = rows.cuts(entries)
    assert (cuts[0].first, cuts[-1].last) == (0, 40)
    longest = int(np.diff(offsets).max())
    for cut in cuts:
        assert (cut.start, cut.stop) == (offsets[cut.first], offsets[cut.last])
        assert cut.stop - cut.start <= entries + longest
        assert cut.last - cut.first <= most
    found = list(rows.blocks(cuts))
    np.testing.assert_array_equal(np.concatenate([block.neighbours for block in found]), sources)
    for cut, block in zip(cuts, found, strict=True):
        np.testing.assert_array_equal(block.offsets, offsets[block.first : block.last + 1] - offsets[block.first])
        np.testing.assert_array_equal(rows.offsets_of(cut), block.offsets)
    np.testing.assert_array_equal(rows.degrees(), np.diff(offsets))
    assert rows.degrees().dtype == np.int32


def read(offsets: np.ndarray, neighbours: np.ndarray) -> None:
    rows = EdgeRows.of_arrays(offsets, neighbours)
    list(rows.blocks(rows.cuts()))


@pytest.mark.parametrize(
    ("offsets", "neighbours", "told"),
    [
        ([0, 2, 1, 3], [0, 1, 2], "offsets must begin with 0 and never fall"),
        ([1, 2, 3], [0, 1, 1], "offsets must begin with 0"),
        ([0, 2], [0, 0, 0], "offsets ends with 2, expected 3, the length of sources"),
        ([0, 2, 3], [0, 2, 0], r"sources holds 2: must be ≥ 0 and < 2"),
        ([0, 2, 3], [0, -1, 0], r"sources holds -1: must be ≥ 0 and < 2"),
        ([], [], "offsets is empty"),
        ([0.0, 1.0], [0], "offsets must be integers"),
    ],
)
def test_wrong_rows(offsets: list[int], neighbours: list[int], told: str) -> None:
    arrays = (
        np.array(offsets, np.int64 if told != "offsets must be integers" else float),
        np.array(neighbours, np.int32),
    )
    with pytest.raises(GraphError, match=told):
        read(*arrays)


def test_no_vertices() -> None:
    rows = EdgeRows(HeldRows(np.zeros(1, np.int64)), HeldRows(np.zeros(0, np.int32)))
    assert rows.cuts() == []
    assert len(rows.degrees()) == 0
