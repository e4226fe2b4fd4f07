"""Random numbers for the generators: independent streams by key, the same bits on every machine.

A stream is an SFC64 generator seeded through `numpy.random.SeedSequence` by (seed, key); both are among what NumPy
keeps stable across versions, which the distributions of `numpy.random.Generator` are not. Distributions are therefore
made here from raw 64-bit words by integer arithmetic and correctly rounded float operations: no logarithm or cosine,
whose last bits depend on the processor's vector units.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float32, Int64, UInt64

from dorylax.graph.rows import spans
from dorylax.graph.splits import random_order

_LOW = np.uint64(0xFFFFFFFF)
_PAIRS = np.uint64(0x0000FFFF0000FFFF)
_BOTH = np.uint64(0x0000000100000001)
_HALF, _SIXTEEN = np.uint64(32), np.uint64(16)
_AT_A_TIME = 1 << 15  # words: they stay in a core's cache


class Stream:
    """A stream of random words of a user's seed ≥ 0; `key`, small integers ≥ 0, is its purpose: others are independent."""

    def __init__(self, seed: int, *key: int) -> None:
        self._of = seed, key
        self._bits = self._anew()

    def words(self, count: int) -> UInt64[np.ndarray, " {count}"]:
        """The next `count` words, each uniform on 0 … 2⁶⁴-1."""
        return np.asarray(self._bits.random_raw(count), np.uint64)

    def uniform(self, count: int) -> np.ndarray:
        """Uniform on [0, 1), 53 bits, float64 `[count]`."""
        return (self.words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def below(self, bound: int, count: int) -> Int64[np.ndarray, " {count}"]:
        """Uniform on 0 … bound-1 (bound < 2³²; the bias is below bound/2³²), int64 `[count]`."""
        return scaled(self.words(count) >> _HALF, np.uint64(bound))

    def skip(self, count: int) -> None:
        """Passes over words."""
        for start, stop in spans(count):
            self.words(stop - start)

    def random_order(self, count: int) -> Iterator[Int64[np.ndarray, " N"]]:
        """A random order of 0 … count-1 in pieces, by the stream's words from its beginning."""
        return random_order(self._anew, count)

    def near_normal(self, count: int) -> Float32[np.ndarray, " {count}"]:
        """Nearly normal with mean 0 and variance 1, float32 `[count]`: a sum of four uniform 16-bit numbers.

        Its tails end at ±3.46 and its excess kurtosis is -0.3 (the Irwin-Hall distribution of order 4).
        """
        normal = np.empty(count, np.float32)
        for start, stop in spans(count, _AT_A_TIME):
            words = self.words(stop - start)
            pairs = words >> _SIXTEEN
            pairs &= _PAIRS
            words &= _PAIRS
            words += pairs
            words *= _BOTH  # the high half is the sum of both, an integer below 2¹⁸: exact
            normal[start:stop] = words.view(np.int32)[1::2]
            part = normal[start:stop]
            part -= np.float32(2 * 65535)
            part *= np.float32((3 / (65536**2 - 1)) ** 0.5)
        return normal

    def _anew(self) -> np.random.SFC64:
        seed, key = self._of
        return np.random.SFC64(np.random.SeedSequence(seed, spawn_key=key))


def halves(words: UInt64[np.ndarray, " n"]) -> tuple[UInt64[np.ndarray, " n"], UInt64[np.ndarray, " n"]]:
    """The high and the low 32 bits of each word: two uniform numbers on 0 … 2³²-1 from one."""
    return words >> _HALF, words & _LOW


def scaled(numbers: UInt64[np.ndarray, " n"], bound: np.ndarray | np.uint64) -> Int64[np.ndarray, " n"]:
    """Maps numbers uniform on 0 … 2³²-1 to 0 … bound-1, by multiplication and shift. Overwrites its first argument."""
    numbers *= bound
    numbers >>= _HALF
    return numbers.view(np.int64)
