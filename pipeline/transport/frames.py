"""Converts messages between processes to ZeroMQ frames, and back.

A *parcel* is the unit of sending. Its first frame holds the sender (`Sender`) and then the messages, each as

    number of the request, 8 bytes | bytes of the header, 4 | header, MessagePack | small arrays, each aligned to 8 bytes

A final message without a header acknowledges requests: their numbers, each with the delay of its acknowledgement in
seconds. One frame per large array follows. Each frame costs a ZeroMQ call on both sides, so small arrays are copied into the
first frame. ZeroMQ sends large arrays without a copy.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgpack
import numpy as np
import zmq

from dorylax.serverless.wire.tensors import TensorSpec, bytes_of, travelling

COPIED_BYTES = 1 << 18
"""Size from which arrays get a frame of their own. Freeing such a frame costs the sender a call from another thread."""

_HEAD = struct.Struct("<QI")
_ACKNOWLEDGEMENT = struct.Struct("<Qf")
_SENDER = struct.Struct("<QqQ")
_ALIGNED = 8


class Letter(NamedTuple):
    """An encoded message.

    Attributes:
        head: Number and header.
        arrays: Bytes of the small arrays.
        large: Bytes of the large arrays.
        num_bytes: Total bytes.
    """

    head: bytes
    arrays: list[memoryview]
    large: list[memoryview]
    num_bytes: int


class Message(NamedTuple):
    """A received message.

    Attributes:
        number: Number of the request, or of the request that it replies to.
        who: Kind and addresses of a request; empty for a reply.
        document: Document of a `Codec`.
        arrays: Arrays of the document.
    """

    number: int
    who: list[Any]
    document: Any
    arrays: list[np.ndarray]


class Sender(NamedTuple):
    """The sender of a parcel.

    Attributes:
        process: Unique number of the process within the run.
        generation: The process's current generation.
        oldest: Number of its oldest unanswered request.
    """

    process: int
    generation: int
    oldest: int


class Parcel(NamedTuple):
    """A received parcel.

    Attributes:
        messages: Requests and replies.
        acknowledged: Numbers of requests with empty replies, and the delay of each acknowledgement in seconds.
        sender: Sender of the parcel.
    """

    messages: list[Message]
    acknowledged: list[tuple[int, float]]
    sender: Sender


def letter(number: int, who: Sequence[Any], document: Any, arrays: Sequence[np.ndarray]) -> Letter:
    """Encode a request, or a reply to one."""
    sent = [travelling(array) for array in arrays]
    header: bytes = msgpack.packb([who, document, [(_name(array.dtype), array.shape) for array in sent]])
    small = [bytes_of(array) for array in sent if 0 < array.nbytes < COPIED_BYTES]
    large = [bytes_of(array) for array in sent if array.nbytes >= COPIED_BYTES]
    num_bytes = _HEAD.size + len(header) + sum(len(one) for one in small) + sum(len(one) for one in large)
    return Letter(_HEAD.pack(number, len(header)) + header, small, large, num_bytes)


def parcel(
    letters: Sequence[Letter], acknowledged: Sequence[tuple[int, float]], sender: Sender
) -> list[bytes | memoryview]:
    """Return the frames of letters and acknowledgements; see `Parcel`."""
    parts: list[bytes | memoryview] = [_SENDER.pack(*sender)]
    end = _SENDER.size
    for one in letters:
        parts.append(one.head)
        end += len(one.head)
        for array in one.arrays:
            gap = -end % _ALIGNED
            if gap:
                parts.append(bytes(gap))
            parts.append(array)
            end += gap + len(array)
    if acknowledged:
        parts.append(_HEAD.pack(0, 0))
        parts += (_ACKNOWLEDGEMENT.pack(*one) for one in acknowledged)
    return [b"".join(parts), *(array for one in letters for array in one.large)]


def acknowledgement_bytes(count: int) -> int:
    """Return the bytes of an acknowledgement of `count` requests."""
    return _HEAD.size + _ACKNOWLEDGEMENT.size * count


def opened(frames: Sequence[zmq.Frame]) -> Parcel:
    """Decode the frames of a parcel. Arrays are views of the frames."""
    first = frames[0].buffer
    large = iter(frames[1:])
    messages: list[Message] = []
    sender = Sender(*_SENDER.unpack_from(first))
    end = _SENDER.size
    while end < len(first):
        number, length = _HEAD.unpack_from(first, end)
        end += _HEAD.size
        if not length:
            return Parcel(messages, list(_ACKNOWLEDGEMENT.iter_unpack(first[end:])), sender)
        who, document, specs = msgpack.unpackb(first[end : end + length])
        end += length
        arrays = []
        for dtype, shape in specs:
            kind, size = _checked(dtype, tuple(shape))
            if size >= COPIED_BYTES:
                arrays.append(np.ndarray(shape, kind, next(large).buffer))
            else:
                end += -end % _ALIGNED if size else 0
                arrays.append(np.ndarray(shape, kind, first, end if size else 0))
                end += size
        messages.append(Message(number, who, document, arrays))
    return Parcel(messages, [], sender)


@functools.lru_cache(4096)
def _checked(dtype: str, shape: tuple[int, ...]) -> tuple[np.dtype[Any], int]:
    """Return a validated dtype and the bytes of an array. Cached, because shapes repeat in every epoch."""
    spec = TensorSpec(dtype, shape)
    return spec.numpy, spec.nbytes


@functools.lru_cache(64)
def _name(dtype: np.dtype[Any]) -> str:
    return TensorSpec(dtype.name, ()).dtype
