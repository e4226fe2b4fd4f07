"""Random numbers for the generators: independent streams by key, the same bits on every machine.

A stream is an SFC64 generator seeded through `numpy.random.SeedSequence` by (seed, key); both are among what NumPy
keeps stable across versions, which the distributions of `numpy.random.Generator` are not. Distributions are therefore
made here from raw 64-bit words by integer arithmetic and correctly rounded float operations: no logarithm or cosine,
whose last bits depend on the processor's vector units.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32, Int64, UInt64

_LOW = np.uint64(0xFFFFFFFF)
_PAIRS = np.uint64(0x0000FFFF0000FFFF)
_HALF, _SIXTEEN = np.uint64(32), np.uint64(16)


class Stream:
    """A stream of random words.

    Args:
        seed: the user's seed, ≥ 0.
        key: what the stream is for: small integers ≥ 0; different keys give independent streams.
    """

    def __init__(self, seed: int, *key: int) -> None:
        self._bits = np.random.SFC64(np.random.SeedSequence(seed, spawn_key=key))

    def words(self, count: int) -> UInt64[np.ndarray, " {count}"]:
        """The next `count` words, each uniform on 0 … 2⁶⁴-1."""
        return np.asarray(self._bits.random_raw(count), np.uint64)

    def uniform(self, count: int) -> np.ndarray:
        """Uniform on [0, 1), 53 bits, float64 `[count]`."""
        return (self.words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def below(self, bound: int, count: int) -> Int64[np.ndarray, " {count}"]:
        """Uniform on 0 … bound-1 (bound < 2³²; the bias is below bound/2³²), int64 `[count]`."""
        return scaled(self.words(count) >> _HALF, np.uint64(bound))

    def permutation(self, count: int) -> Int64[np.ndarray, " {count}"]:
        """A random order of 0 … count-1, int64 `[count]`."""
        return np.argsort(self.words(count), kind="stable")

    def near_normal(self, count: int) -> Float32[np.ndarray, " {count}"]:
        """Nearly normal with mean 0 and variance 1, float32 `[count]`: a sum of four uniform 16-bit numbers.

        Its tails end at ±3.46 and its excess kurtosis is -0.3 (the Irwin-Hall distribution of order 4).
        """
        words = self.words(count)
        pairs = (words & _PAIRS) + ((words >> _SIXTEEN) & _PAIRS)
        total = ((pairs & _LOW) + (pairs >> _HALF)).astype(np.float32)  # an integer below 2¹⁸: exact
        total -= np.float32(2 * 65535)
        total *= np.float32((3 / (65536**2 - 1)) ** 0.5)
        return total


def halves(words: UInt64[np.ndarray, " n"]) -> tuple[UInt64[np.ndarray, " n"], UInt64[np.ndarray, " n"]]:
    """The high and the low 32 bits of each word: two uniform numbers on 0 … 2³²-1 from one."""
    return words >> _HALF, words & _LOW


def scaled(numbers: UInt64[np.ndarray, " n"], bound: np.ndarray | np.uint64) -> Int64[np.ndarray, " n"]:
    """Maps numbers uniform on 0 … 2³²-1 to 0 … bound-1, by multiplication and shift. Overwrites its first argument."""
    numbers *= bound
    numbers >>= _HALF
    return numbers.view(np.int64)
