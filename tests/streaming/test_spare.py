"""Arrays are used again, and never are there more than are needed at a time."""

from __future__ import annotations

import weakref

import numpy as np

from dorylax.streaming.spare import SpareArrays


def test_the_same_memory_for_the_same_size() -> None:
    spare = SpareArrays()
    first = spare.take((8, 4), np.float32)
    first[...] = 7
    spare.put(first)
    again = spare.take((16, 2), np.int32)
    assert np.shares_memory(first, again)
    assert not np.shares_memory(again, spare.take((16, 2), np.int32))


def test_spare_ones_go_before_another_is_made() -> None:
    spare = SpareArrays()
    first = spare.take((8, 4), np.float32)
    gone = weakref.ref(first)
    spare.put(first)
    del first
    spare.take((9, 4), np.float32)
    assert gone() is None


def test_no_more_is_kept_than_there_is_room_for() -> None:
    spare = SpareArrays()
    arrays = [spare.take((256,), np.float32) for _ in range(3)]
    for array in arrays:
        spare.put(array)
    spare.keep(2048)
    found = [spare.take((256,), np.float32) for _ in range(3)]
    assert [any(np.shares_memory(one, array) for array in arrays) for one in found] == [True, True, False]
