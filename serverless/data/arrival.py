"""Receives arrays in chunks, in any order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np

from dorylax import aligned
from dorylax.serverless.data.chunks import Chunks
from dorylax.serverless.wire.errors import WireError
from dorylax.serverless.wire.tensors import TensorSpec, bytes_of, total_bytes


@final
class Arrival:
    """Partially received arrays, aligned to 64 bytes so that XLA reads them in place.

    Args:
        specs: Specs of the arrays.
        chunk_bytes: Bytes per chunk.
        max_bytes: Limit of all arrays together, checked before allocation.

    Attributes:
        chunks: Chunks of the arrays.
        prefix: Number of leading chunks received without a gap.

    Raises:
        WireError: The arrays exceed `max_bytes`.
    """

    def __init__(self, specs: Sequence[TensorSpec], chunk_bytes: int, max_bytes: int) -> None:
        total = total_bytes(specs)
        if total > max_bytes:
            raise WireError(f"a transfer must have at most {max_bytes} bytes, got {total}")
        self.chunks = Chunks([spec.nbytes for spec in specs], chunk_bytes)
        self.prefix = 0
        self._arrays = tuple(aligned.empty(spec.shape, spec.numpy) for spec in specs)
        self._contents = [bytes_of(array) for array in self._arrays]
        self._ahead: set[int] = set()

    def has(self, index: int) -> bool:
        """Return whether a chunk has arrived."""
        return index < self.prefix or index in self._ahead

    def store(self, index: int, pieces: Sequence[np.ndarray]) -> bool:
        """Store a chunk.

        Returns:
            False for a repeat, which changes nothing.

        Raises:
            WireError: The pieces do not match the chunk.
        """
        wanted = self.chunks.pieces(index)
        sizes = [piece.last - piece.first for piece in wanted]
        if [piece.nbytes for piece in pieces] != sizes or any(piece.dtype != np.uint8 for piece in pieces):
            raise WireError(
                f"chunk {index} must consist of pieces of {sizes[:8]} bytes, got {[piece.nbytes for piece in pieces][:8]}"
            )
        if self.has(index):
            return False
        for piece, content in zip(wanted, pieces, strict=True):
            self._contents[piece.tensor][piece.first : piece.last] = bytes_of(content)
        self._ahead.add(index)
        while self.prefix in self._ahead:
            self._ahead.remove(self.prefix)
            self.prefix += 1
        return True

    @property
    def complete(self) -> bool:
        """Whether all chunks have arrived."""
        return self.prefix == self.chunks.count

    def arrays(self) -> tuple[np.ndarray, ...]:
        """Return the arrays once they are complete."""
        if not self.complete:
            raise ValueError(f"{self.prefix} of {self.chunks.count} chunks have come: ask when all have")
        return self._arrays
