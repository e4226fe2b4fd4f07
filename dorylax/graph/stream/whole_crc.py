"""The CRC-32 of an array, which zip lists, from those of its blocks, which an archive lists: nothing is summed twice.

A CRC-32 is a polynomial over bits, modulo one of degree 32. n bytes more multiply it by x^(8n), and add their own.
"""

from __future__ import annotations

import functools

from dorylax.graph.checksums import Checksums

_POLYNOMIAL = 0xEDB88320  # of CRC-32; the highest bit of a number is the coefficient of x⁰
_ONE, _BYTE = 1 << 31, 1 << 23  # x⁰, x⁸


def whole_crc(sums: Checksums) -> int:
    """The CRC-32 of all bytes; takes microseconds a block."""
    crc = 0
    for block, of_block in enumerate(sums.blocks):
        begin, end = sums.span(block)
        crc = _product(crc, _shift(end - begin)) ^ of_block
    return crc


@functools.cache
def _shift(size: int) -> int:
    """What so many bytes more multiply by."""
    found, power = _ONE, _BYTE
    while size:
        if size & 1:
            found = _product(found, power)
        power = _product(power, power)
        size >>= 1
    return found


def _product(a: int, b: int) -> int:
    """Of two polynomials, modulo CRC-32's."""
    found = 0
    for bit in range(31, -1, -1):
        if a >> bit & 1:
            found ^= b
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return found
