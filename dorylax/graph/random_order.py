"""A random order of many things, drawn piece by piece, so that its memory does not grow with their number.

The order is that of random words, one for each thing. Words are uniform, so those in a range of values are a known share of
them: each piece draws the whole stream of words again, which is cheap, keeps those of its range and sorts them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from jaxtyping import Int64

from dorylax.graph.in_order import in_order
from dorylax.machine import cores

_PIECE = 1 << 22  # things in a piece, about
_MOST_THREADS = 2  # each sorts a piece
_SORTING = 44  # bytes for each thing that is sorted: word and place, both twice, the order, and room to sort in
_CHUNK = 1 << 16  # words that are drawn at a time: they stay in a core's cache


def random_order(generator: Callable[[], np.random.BitGenerator], count: int) -> Iterator[Int64[np.ndarray, " N"]]:
    """0 … count-1 in ascending order of random words, equal ones in their own order, in consecutive pieces.

    The generator returns the stream from its beginning; its raw word i belongs to number i. NumPy promises that raw words
    never change, and does not for its permutations.
    """
    pieces = math.ceil(count / _PIECE)
    if pieces <= 1:
        yield np.argsort(generator().random_raw(count), kind="stable")
        return

    def piece(number: int) -> Int64[np.ndarray, " N"]:
        first, end = (end * (1 << 64) // pieces for end in (number, number + 1))
        return _between(generator().random_raw, count, first, end - first)

    yield from in_order(piece, range(pieces), min(cores(), _MOST_THREADS))


def order_bytes(count: int) -> int:
    """What `random_order` holds at its peak, the pieces that have been taken apart."""
    return _SORTING * min(count, _MOST_THREADS * _PIECE) + 8 * min(count, _PIECE)


def _between(draw: Callable[[int], np.ndarray], count: int, first: int, width: int) -> Int64[np.ndarray, " N"]:
    """The things whose words are from `first` to `first + width - 1`, in order."""
    places, found = [], []
    for start in range(0, count, _CHUNK):
        word = draw(min(_CHUNK, count - start))
        word -= np.uint64(first)  # what lies below wraps around, and is large
        (kept,) = np.nonzero(word < np.uint64(width))
        places.append((kept + start).astype(np.int32))
        found.append(word[kept])
    order: np.ndarray = np.concatenate(places)[np.argsort(np.concatenate(found), kind="stable")].astype(np.int64)
    return order
