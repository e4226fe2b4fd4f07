"""The CRC-32 of all bytes is what zlib says of them, whatever blocks it comes from."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from dorylax.graph.checksums import Checksums
from dorylax.graph.stream.whole_crc import whole_crc


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 640, 1000])
@pytest.mark.parametrize("block", [1, 50, 64, 1000])
def test_of_blocks(size: int, block: int) -> None:
    content = np.random.default_rng(size).bytes(size)
    blocks = tuple(zlib.crc32(content[begin : begin + block]) for begin in range(0, size, block))
    assert whole_crc(Checksums(size, blocks, block)) == zlib.crc32(content)
