"""Cuts the concatenated bytes of tensors into chunks, so that small tensors share a message."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple, final

from dorylax.serverless.wire.errors import WireError


class ByteRange(NamedTuple):
    """Bytes `first:last` of one tensor."""

    tensor: int
    first: int
    last: int


@final
class Chunks:
    """The chunks of tensors. There is at least one, without pieces if there are no bytes.

    Args:
        sizes: Bytes of each tensor.
        chunk_bytes: Bytes of each chunk except the last.

    Attributes:
        count: Number of chunks.
    """

    def __init__(self, sizes: Sequence[int], chunk_bytes: int) -> None:
        self._ends = list(itertools.accumulate(sizes))
        self._sizes = tuple(sizes)
        self._chunk_bytes = chunk_bytes
        self._total = sum(sizes)
        self.count = max(1, -(-self._total // chunk_bytes))

    def pieces(self, index: int) -> tuple[ByteRange, ...]:
        """Return the byte ranges of a chunk.

        Raises:
            WireError: The chunk does not exist.
        """
        if not 0 <= index < self.count:
            raise WireError(f"'index' must be a chunk from 0 to {self.count - 1}, got {index}")
        start = index * self._chunk_bytes
        stop = min(start + self._chunk_bytes, self._total)
        pieces = []
        tensor = bisect_right(self._ends, start)
        while start < stop:
            begin = self._ends[tensor] - self._sizes[tensor]
            last = min(stop, self._ends[tensor])
            if last > start:
                pieces.append(ByteRange(tensor, start - begin, last - begin))
            start = last
            tensor += 1
        return tuple(pieces)
