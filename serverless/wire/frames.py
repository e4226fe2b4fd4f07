"""Messages of the data plane: a header frame, and one frame of bytes per tensor.

The header is a checksum of four bytes (CRC-32, big-endian), followed by JSON:

    {"format": "dorylax data", "version": 1, "run": "9f…", "kind": "chunk", "fields": {…},
     "tensors": [{"dtype": "float32", "shape": [2, 3], "nbytes": 24, "crc32": 305419896}]}

Frames are read in place, and arrays are sent without a copy. All sizes are checked before an array is created.
`dorylax.serverless.data.protocol` defines the kinds.
"""

from __future__ import annotations

import dataclasses
import sys
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np

from dorylax.serverless.wire.errors import WireError
from dorylax.serverless.wire.fields import Fields, read_object, write_object
from dorylax.serverless.wire.tensors import MAX_TENSORS, TensorSpec, bytes_of, read_spec, spec_of, travelling

VERSION = 1
MAX_HEADER_BYTES = 1024 * 1024
"""Limit of a header; a tensor needs about 70 bytes."""

Buffer = bytes | bytearray | memoryview

_FORMAT = "dorylax data"
_CRC_BYTES = 4

if sys.byteorder != "little":
    raise ImportError("dorylax sends tensors as they lie in memory, little-endian: this machine is big-endian")


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Header:
    """The first frame of a message.

    Attributes:
        run: Id of the run.
        kind: Kind of message.
        fields: Unread fields of the kind.
        specs: Specs of the tensors.
        crcs: CRC-32 of each tensor.
    """

    run: str
    kind: str
    fields: Fields
    specs: tuple[TensorSpec, ...]
    crcs: tuple[int, ...]


def encode(
    run: str,
    kind: str,
    fields: Mapping[str, Any],
    tensors: Sequence[np.ndarray] = (),
    crcs: Sequence[int] | None = None,
) -> list[bytes | memoryview]:
    """Return the frames of a message.

    Args:
        run: Id of the run.
        kind: Kind of message.
        fields: JSON fields.
        tensors: Tensors of any layout; only non-contiguous ones are copied.
        crcs: CRC-32 of each tensor, if known.

    Returns:
        The header, and a view of each tensor.

    Raises:
        WireError: A dtype or field is unsupported, or there are too many tensors.
    """
    if len(tensors) > MAX_TENSORS:
        raise WireError(f"a message must have at most {MAX_TENSORS} tensors, got {len(tensors)}")
    specs = [spec_of(tensor) for tensor in tensors]
    contents = [bytes_of(travelling(tensor)) for tensor in tensors]
    if crcs is None:
        crcs = [zlib.crc32(content) for content in contents]
    document = {
        "format": _FORMAT,
        "version": VERSION,
        "run": run,
        "kind": kind,
        "fields": dict(fields),
        "tensors": [
            {**spec.to_json(), "nbytes": spec.nbytes, "crc32": crc} for spec, crc in zip(specs, crcs, strict=True)
        ],
    }
    text = write_object(document, "message")
    if len(text) + _CRC_BYTES > MAX_HEADER_BYTES:
        raise WireError(f"a header must have at most {MAX_HEADER_BYTES} bytes, got {len(text) + _CRC_BYTES}")
    return [zlib.crc32(text).to_bytes(_CRC_BYTES, "big") + text, *contents]


def decode_header(frame: Buffer) -> Header:
    """Decode the header of a message, independently of its other frames.

    Raises:
        WireError: The header is damaged.
        WireError: The version differs.
        WireError: The frame is not a header.
    """
    if len(frame) > MAX_HEADER_BYTES:
        raise WireError(f"a header must have at most {MAX_HEADER_BYTES} bytes, got {len(frame)}")
    view = memoryview(frame)
    text = view[_CRC_BYTES:]
    if len(view) < _CRC_BYTES or zlib.crc32(text) != int.from_bytes(view[:_CRC_BYTES], "big"):
        raise WireError(f"a header of {len(view)} bytes has a wrong checksum", damaged=True)
    top = read_object(text, "header", MAX_HEADER_BYTES)
    top.format(_FORMAT, VERSION)
    run, kind, fields = top.text("run", limit=64), top.text("kind", limit=64), top.nested("fields")
    specs: list[TensorSpec] = []
    crcs: list[int] = []
    for item in top.objects("tensors"):
        if len(specs) == MAX_TENSORS:
            raise WireError(f"a message must have at most {MAX_TENSORS} tensors")
        spec = read_spec(item)
        nbytes = item.integer("nbytes")
        if nbytes != spec.nbytes:
            raise WireError(f"{spec.dtype} {list(spec.shape)} must have {spec.nbytes} bytes, got {nbytes}")
        specs.append(spec)
        crcs.append(item.integer("crc32", most=2**32 - 1))
        item.end()
    top.end()
    return Header(run, kind, fields, tuple(specs), tuple(crcs))


def decode_tensors(header: Header, frames: Sequence[Buffer], max_bytes: int) -> tuple[np.ndarray, ...]:
    """Return the tensors of a message as read-only views of its frames.

    Args:
        header: Decoded first frame.
        frames: Remaining frames.
        max_bytes: Limit of all tensors together.

    Raises:
        WireError: A frame is damaged.
        WireError: The frames do not match the header, or exceed the limit.
    """
    if len(frames) != len(header.specs):
        raise WireError(f"the header tells of {len(header.specs)} tensors, got {len(frames)} frames after it")
    total = sum(len(frame) for frame in frames)
    if total > max_bytes:
        raise WireError(f"the tensors of a message must have at most {max_bytes} bytes, got {total}")
    for k, (spec, frame) in enumerate(zip(header.specs, frames, strict=True)):
        if len(frame) != spec.nbytes:
            raise WireError(
                f"tensor {k}, {spec.dtype} {list(spec.shape)}, must have {spec.nbytes} bytes, got {len(frame)}"
            )
    for k, (crc, frame) in enumerate(zip(header.crcs, frames, strict=True)):
        if zlib.crc32(frame) != crc:
            raise WireError(f"tensor {k} of {len(frame)} bytes has a wrong checksum", damaged=True)
    return tuple(_view(spec, frame) for spec, frame in zip(header.specs, frames, strict=True))


def _view(spec: TensorSpec, frame: Buffer) -> np.ndarray:
    array = np.frombuffer(frame, np.uint8).view(spec.numpy).reshape(spec.shape)
    array.flags.writeable = False
    return array
