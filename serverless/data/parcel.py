"""Sends arrays in chunks, without a copy."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from dorylax.serverless.data import protocol
from dorylax.serverless.data.chunks import Chunks
from dorylax.serverless.wire import frames
from dorylax.serverless.wire.errors import WireError
from dorylax.serverless.wire.tensors import MAX_TENSORS, bytes_of, spec_of, total_bytes, travelling


@final
class Parcel:
    """Outgoing arrays. Do not write to them during the transfer.

    Args:
        arrays: Arrays of any layout; non-contiguous ones are copied.
        chunk_bytes: Bytes per chunk.
        max_bytes: Limit of all arrays together.

    Attributes:
        specs: Specs of the arrays.
        nbytes: Bytes of all arrays together.
        chunks: Chunks of the arrays.

    Raises:
        WireError: A dtype is unsupported, or the arrays exceed a limit.
    """

    def __init__(self, arrays: Sequence[np.ndarray], chunk_bytes: int, max_bytes: int) -> None:
        if len(arrays) > MAX_TENSORS:
            raise WireError(f"at most {MAX_TENSORS} arrays may be sent together, got {len(arrays)}")
        self.specs = tuple(spec_of(array) for array in arrays)
        self.nbytes = total_bytes(self.specs)
        if self.nbytes > max_bytes:
            raise WireError(f"at most {max_bytes} bytes may be sent together, got {self.nbytes}")
        self.chunks = Chunks([spec.nbytes for spec in self.specs], chunk_bytes)
        self._contents = [bytes_of(travelling(array)) for array in arrays]
        self._crcs: dict[int, list[int]] = {}

    def layout(self) -> list[dict[str, Any]]:
        """Return the specs as JSON."""
        return [spec.to_json() for spec in self.specs]

    def message(self, run: str, transfer: int, index: int) -> list[bytes | memoryview]:
        """Return a chunk as a separate message."""
        return self.message_with(run, protocol.CHUNK, {"transfer": transfer, "index": index}, index)

    def message_with(self, run: str, kind: str, fields: dict[str, Any], index: int) -> list[bytes | memoryview]:
        """Return a message with a chunk."""
        pieces = [self._contents[piece.tensor][piece.first : piece.last] for piece in self.chunks.pieces(index)]
        # Every worker receives the weights, so their checksums are cached.
        crcs = self._crcs.get(index)
        if crcs is None:
            crcs = self._crcs[index] = [zlib.crc32(piece) for piece in pieces]
        return frames.encode(run, kind, fields, [np.frombuffer(piece, np.uint8) for piece in pieces], crcs)

    def chunk_nbytes(self, index: int) -> int:
        """Return the bytes of a chunk."""
        return sum(piece.last - piece.first for piece in self.chunks.pieces(index))
