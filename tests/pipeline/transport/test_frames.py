from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dorylax.pipeline.transport import frames

DTYPES = st.sampled_from([np.float32, np.float64, np.int64, np.bool_, np.dtype(ml_dtypes.bfloat16)])
ARRAYS = DTYPES.flatmap(
    lambda dtype: arrays.arrays(
        dtype, arrays.array_shapes(min_dims=0, min_side=0, max_side=4), elements=st.integers(0, 1)
    )
)
LETTERS = st.lists(st.tuples(st.integers(0, 2**64 - 1), st.lists(ARRAYS, max_size=4)), max_size=4)
DONE = st.lists(st.tuples(st.integers(0, 2**64 - 1), st.floats(0, 1, width=32)), max_size=5)


SENDER = frames.Sender(2**63 + 5, -1, 7)
SENDER_BYTES = 24


def through(letters: list[tuple[int, list[np.ndarray]]], acknowledged: list[tuple[int, float]]) -> frames.Parcel:
    sent = [frames.letter(number, ("rows", number), {"t": [number]}, found) for number, found in letters]
    parts = frames.parcel(sent, acknowledged, SENDER)
    size = sum(len(part) for part in parts) - SENDER_BYTES
    gaps = size - sum(one.num_bytes for one in sent)
    if acknowledged:
        gaps -= frames.acknowledgement_bytes(len(acknowledged))
    assert 0 <= gaps < 8 * sum(len(found) for _, found in letters) + 1  # nothing but what aligns arrays
    found = frames.opened([zmq.Frame(part) for part in parts])
    assert found.sender == SENDER
    return found


@given(LETTERS, DONE)
def test_what_comes_is_what_was_sent(letters: Any, acknowledged: list[tuple[int, float]]) -> None:
    if not letters and not acknowledged:
        return  # nobody sends nothing
    found = through(letters, acknowledged)
    assert found.acknowledged == acknowledged
    assert [message.number for message in found.messages] == [number for number, _ in letters]
    for message, (number, sent) in zip(found.messages, letters, strict=True):
        assert message.who == ["rows", number]
        assert message.document == {"t": [number]}
        for one, other in zip(message.arrays, sent, strict=True):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            np.testing.assert_array_equal(one, other)
            assert one.flags.aligned


@pytest.mark.parametrize("large", [1, 2])
def test_large_arrays_have_frames_of_their_own(large: int) -> None:
    sizes = [3, frames.COPIED_BYTES, 5, frames.COPIED_BYTES + 1][: 2 * large]
    sent = [np.full(size, place, np.uint8) for place, size in enumerate(sizes)]
    letters = [frames.letter(place, (), None, [array]) for place, array in enumerate(sent)]
    parts = frames.parcel(letters, [(7, 0.5)], SENDER)
    assert len(parts) == 1 + large
    found = frames.opened([zmq.Frame(part) for part in parts])
    for message, array in zip(found.messages, sent, strict=True):
        np.testing.assert_array_equal(message.arrays[0], array)
    assert found.acknowledged == [(7, 0.5)]


def test_what_lies_otherwise_is_sent_row_after_row_in_the_order_of_this_machine() -> None:
    array = np.arange(12, dtype=">i4").reshape(3, 4).T
    letter = frames.letter(1, (), None, [array])
    (found,) = frames.opened([zmq.Frame(part) for part in frames.parcel([letter], [], SENDER)]).messages
    np.testing.assert_array_equal(found.arrays[0], array)
