"""Arrays to be sent, chunk by chunk, without a copy."""

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
    """Arrays to be sent; nobody may write to them meanwhile.

    Args:
        arrays: of any layout; those that are not contiguous are copied.
        chunk_bytes: of a chunk.
        max_bytes: of all arrays together.

    Attributes:
        specs: of the arrays.
        nbytes: of all together.
        chunks: how they are cut.

    Raises:
        WireError: a dtype that cannot be sent, or too many arrays or bytes.
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
        """The specs as JSON."""
        return [spec.to_json() for spec in self.specs]

    def message(self, run: str, transfer: int, index: int) -> list[bytes | memoryview]:
        """A chunk, as a message of its own."""
        return self.message_with(run, protocol.CHUNK, {"transfer": transfer, "index": index}, index)

    def message_with(self, run: str, kind: str, fields: dict[str, Any], index: int) -> list[bytes | memoryview]:
        """A message that carries a chunk."""
        pieces = [self._contents[piece.tensor][piece.first : piece.last] for piece in self.chunks.pieces(index)]
        # Weights are sent to every worker: their checksums are computed once.
        crcs = self._crcs.get(index)
        if crcs is None:
            crcs = self._crcs[index] = [zlib.crc32(piece) for piece in pieces]
        return frames.encode(run, kind, fields, [np.frombuffer(piece, np.uint8) for piece in pieces], crcs)

    def chunk_nbytes(self, index: int) -> int:
        """Bytes of a chunk."""
        return sum(piece.last - piece.first for piece in self.chunks.pieces(index))
