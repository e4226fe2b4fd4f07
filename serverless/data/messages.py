"""Messages between servers and workers: a header, followed by tensor bytes in frames of at most `PIECE_BYTES`.

    worker                                    server
    get     name                              coming   sizes, if they exceed a frame
                                              tensors  with their bytes
                                              absent   no such offer
    put     name, with tensors                done     accepted, duplicate or late
                                              refused  with the reason; a retry would fail too

The header is JSON, `{"format": "dorylax data", "version": 2, "run": "9f…", "kind": "put", "number": 3, "text": "result/…",
"tensors": [{"dtype": "float32", "shape": [2, 3]}]}`. The worker chooses `number`, and every reply repeats it; replies to an
unreadable header have number 0. Arrays are sent without a copy. There are no checksums: CURVE authenticates each byte over
tcp, and messages over ipc do not leave the machine's memory.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dorylax import aligned
from dorylax.serverless.wire.errors import WireError
from dorylax.serverless.wire.fields import read_object, write_object
from dorylax.serverless.wire.tensors import (
    MAX_TENSORS,
    TensorSpec,
    bytes_of,
    read_specs,
    spec_of,
    total_bytes,
    travelling,
)

GET, PUT = "get", "put"
COMING, TENSORS, ABSENT, DONE, REFUSED = "coming", "tensors", "absent", "done", "refused"
ACCEPTED, DUPLICATE, LATE = "accepted", "duplicate", "late"
"""Possible texts of a `DONE` reply."""

PIECE_BYTES = 1 << 20
"""Maximum bytes of a tensor per frame. ZeroMQ sends heartbeats between frames, so a slow link does not look dead."""

FRAME_BYTES = 1 << 22
"""Limit of an encrypted frame in bytes. ZeroMQ disconnects peers that exceed it before it allocates memory."""

MAX_BYTES = 1 << 30
"""Default limit of one transfer in bytes."""

MAX_NAME = 256
"""Limit of a name in characters."""

Buffer = bytes | bytearray | memoryview

_FORMAT, _VERSION = "dorylax data", 2
_MAX_HEADER_BYTES = 1 << 20  # a tensor needs about 40 bytes

if sys.byteorder != "little":
    raise ImportError("dorylax sends tensors as they lie in memory, little-endian: this machine is big-endian")


class Header(NamedTuple):
    """First frame of a message.

    Attributes:
        run: Id of the run.
        kind: Kind of the message.
        number: Number of the request.
        text: Name in a request; state or reason in a reply.
        specs: Specs of the tensors.
    """

    run: str
    kind: str
    number: int
    text: str
    specs: tuple[TensorSpec, ...]

    @property
    def nbytes(self) -> int:
        """Total bytes of the tensors."""
        return total_bytes(self.specs)

    def encode(self) -> bytes:
        """Encode the header as a frame."""
        document = {
            "format": _FORMAT,
            "version": _VERSION,
            **self._asdict(),
            "tensors": [spec.to_json() for spec in self.specs],
        }
        del document["specs"]
        return write_object(document, "header")


class Tensors(NamedTuple):
    """Outgoing arrays. Do not write to the arrays before their arrival.

    Attributes:
        specs: Specs of the arrays.
        nbytes: Total bytes of the arrays.
        frames: Views of the arrays' bytes. Only non-contiguous arrays are copied.
    """

    specs: tuple[TensorSpec, ...]
    nbytes: int
    frames: list[memoryview]

    @classmethod
    def of(cls, arrays: Sequence[np.ndarray], max_bytes: int) -> Tensors:
        """Prepare arrays of any layout.

        Raises:
            WireError: If a dtype is unsupported or the arrays exceed a limit.
        """
        if len(arrays) > MAX_TENSORS:
            raise WireError(f"at most {MAX_TENSORS} arrays may be sent together, got {len(arrays)}")
        specs = tuple(spec_of(array) for array in arrays)
        if (nbytes := total_bytes(specs)) > max_bytes:
            raise WireError(f"at most {max_bytes} bytes may be sent together, got {nbytes}")
        return cls(specs, nbytes, [piece for array in arrays for piece in _pieces(bytes_of(travelling(array)))])


def decode_header(frame: Buffer) -> Header:
    """Decode the header of a message.

    Raises:
        WireError: If the frame is not a header of this version.
    """
    fields = read_object(frame, "header", _MAX_HEADER_BYTES)
    fields.format(_FORMAT, _VERSION)
    header = Header(
        fields.text("run", limit=64),
        fields.text("kind", limit=64),
        fields.integer("number"),
        fields.text("text"),
        read_specs(fields, "tensors"),
    )
    fields.end()
    return header


def decode_tensors(header: Header, frames: Sequence[Buffer], max_bytes: int) -> tuple[np.ndarray, ...]:
    """Decode the tensors of a message as writable arrays aligned to 64 bytes, which XLA reads in place.

    Args:
        header: Decoded header of the message.
        frames: Remaining frames of the message.
        max_bytes: Limit of the total size in bytes, checked before any allocation.

    Raises:
        WireError: If the frames do not match the header or exceed the limit.
    """
    if header.nbytes > max_bytes:
        raise WireError(f"a transfer must have at most {max_bytes} bytes, got {header.nbytes}")
    if (total := sum(map(len, frames))) != header.nbytes:
        raise WireError(f"the header tells of {header.nbytes} bytes, got {total}")
    arrays, left = [], iter(frames)
    for spec in header.specs:
        array = aligned.empty(spec.shape, spec.numpy)
        for piece in _pieces(bytes_of(array)):
            frame = next(left, b"")
            if len(frame) != len(piece):
                raise WireError(
                    f"a frame of {spec.dtype} {list(spec.shape)} must have {len(piece)} bytes, got {len(frame)}"
                )
            piece[:] = frame
        arrays.append(array)
    if next(left, None) is not None:
        raise WireError(f"the header tells of {len(header.specs)} tensors, got more frames than they fill")
    return tuple(arrays)


def _pieces(content: memoryview) -> list[memoryview]:
    """Split the bytes of an array into frames (none for an empty array)."""
    return [content[first : first + PIECE_BYTES] for first in range(0, len(content), PIECE_BYTES)]
