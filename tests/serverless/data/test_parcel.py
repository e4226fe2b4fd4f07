"""An arrival joins what a parcel sends, in any order and with repetitions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.messages import decode

from dorylax.serverless.data.arrival import Arrival
from dorylax.serverless.data.parcel import Parcel
from dorylax.serverless.wire.errors import WireError

LARGE = 1 << 30
ARRAYS = (
    np.arange(700.0).reshape(7, 100).T,
    np.asarray(3, np.int32),
    np.zeros((0, 4)),
    np.arange(1000, dtype=ml_dtypes.bfloat16),
    np.ones(5, bool),
)


def pieces(parcel: Parcel, index: int) -> tuple[np.ndarray, ...]:
    return decode([bytes(part) for part in parcel.message("9f", 1, index)])[1]


@given(st.randoms(use_true_random=False), st.integers(100, 9000))
def test_chunks_may_come_in_any_order_and_twice(random, chunk_bytes):
    parcel = Parcel(ARRAYS, chunk_bytes, LARGE)
    arrival = Arrival(parcel.specs, chunk_bytes, LARGE)
    order = list(range(parcel.chunks.count)) * 2
    random.shuffle(order)
    seen: set[int] = set()
    for index in order:
        assert arrival.complete == (len(seen) == parcel.chunks.count)
        assert arrival.has(index) == (index in seen)
        assert arrival.store(index, pieces(parcel, index)) == (index not in seen)
        seen.add(index)
    for found, wanted in zip(arrival.arrays(), ARRAYS, strict=True):
        assert (found.dtype, found.shape, found.tobytes()) == (wanted.dtype, wanted.shape, wanted.tobytes())
        assert found.ctypes.data % 64 == 0 or not found.size
        assert found.flags.writeable
        assert found.flags.c_contiguous


def test_a_chunk_that_comes_again_changes_nothing():
    parcel = Parcel([np.zeros(100)], 400, LARGE)
    arrival = Arrival(parcel.specs, 400, LARGE)
    arrival.store(0, pieces(parcel, 0))
    arrival.store(0, [np.full(400, 7, np.uint8)])
    arrival.store(1, pieces(parcel, 1))
    assert not arrival.arrays()[0].any()


def test_an_arrival_is_not_given_away_before_it_is_complete():
    arrival = Arrival(Parcel([np.zeros(100)], 400, LARGE).specs, 400, LARGE)
    with pytest.raises(ValueError, match="0 of 2 chunks have come"):
        arrival.arrays()


@pytest.mark.parametrize(
    "wrong", [[], [np.zeros(399, np.uint8)], [np.zeros(50)], [np.zeros(200, np.uint8), np.zeros(200, np.uint8)]]
)
def test_pieces_must_be_those_of_the_chunk(wrong):
    arrival = Arrival(Parcel([np.zeros(100)], 400, LARGE).specs, 400, LARGE)
    with pytest.raises(WireError, match="chunk 0 must consist of pieces"):
        arrival.store(0, wrong)


def test_every_piece_of_a_chunk_is_bytes():
    arrival = Arrival(Parcel([np.zeros(25), np.zeros(25)], 400, LARGE).specs, 400, LARGE)
    with pytest.raises(WireError, match=r"chunk 0 must consist of pieces of \[200, 200\] bytes"):
        arrival.store(0, [np.zeros(200, np.uint8), np.zeros(25)])


def test_memory_is_not_taken_for_what_is_too_large():
    specs = Parcel([np.broadcast_to(np.float64(0), (1 << 20,))], 1024, LARGE).specs
    with pytest.raises(WireError, match="at most 1000 bytes, got 8388608"):
        Arrival(specs, 1024, 1000)
    with pytest.raises(WireError, match="at most 1000 bytes may be sent"):
        Parcel([np.zeros(126)], 1024, 1000)
    with pytest.raises(WireError, match="at most 4096 arrays"):
        Parcel([np.zeros(0)] * 4097, 1024, 1000)


def test_what_is_sent_twice_keeps_its_first_checksum():
    """So that arrays that are written to while they are sent are noticed."""
    array = np.zeros(10)
    parcel = Parcel([array], 1024, LARGE)
    parcel.message("9f", 1, 0)
    array[0] = 1
    with pytest.raises(WireError) as caught:
        pieces(parcel, 0)
    assert caught.value.damaged
