"""Chunks cover the bytes of all tensors, each once, in order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylax.serverless.data.chunks import ByteRange, Chunks
from dorylax.serverless.wire.errors import WireError


@given(st.lists(st.integers(0, 50), max_size=12), st.integers(1, 40))
def test_chunks_cover_every_byte_once_in_order(sizes, chunk_bytes):
    chunks = Chunks(sizes, chunk_bytes)
    found = []
    for index in range(chunks.count):
        pieces = chunks.pieces(index)
        length = sum(piece.last - piece.first for piece in pieces)
        assert length == chunk_bytes or index == chunks.count - 1
        assert all(piece.last > piece.first for piece in pieces)
        found += [(piece.tensor, k) for piece in pieces for k in range(piece.first, piece.last)]
    assert found == [(tensor, k) for tensor, size in enumerate(sizes) for k in range(size)]


def test_what_has_no_bytes_is_one_chunk_of_nothing():
    assert Chunks([], 8).count == Chunks([0, 0], 8).count == 1
    assert Chunks([0, 0], 8).pieces(0) == ()


def test_small_tensors_share_a_chunk_and_long_ones_are_cut():
    chunks = Chunks([3, 10], 8)
    assert chunks.pieces(0) == (ByteRange(0, 0, 3), ByteRange(1, 0, 5))
    assert chunks.pieces(1) == (ByteRange(1, 5, 10),)


@pytest.mark.parametrize("index", [-1, 2])
def test_there_is_no_other_chunk(index):
    with pytest.raises(WireError, match="a chunk from 0 to 1"):
        Chunks([16], 8).pieces(index)
