"""Messages of the transport between processes as frames of ZeroMQ, and back.

What goes to a process at a time is a *parcel*: messages, one after another, each

    number of the request, 8 bytes | bytes of the header, 4 | header, MessagePack | each small array, from a multiple of 8 on

after what says who sends it (`Sender`), and, where letters are acknowledged, a last one without a header, whose rest are
their numbers, each with the seconds for which that was held back; after that a frame for each large array. Every frame costs
a call of ZeroMQ, on either side, so what is small is copied together; ZeroMQ sends large arrays from where they lie.
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
"""Of an array that is copied: a frame that is not costs the sender a call of another thread, when it has been sent."""

_HEAD = struct.Struct("<QI")
_ACKNOWLEDGEMENT = struct.Struct("<Qf")
_SENDER = struct.Struct("<QqQ")
_ALIGNED = 8


class Letter(NamedTuple):
    """A message that has not been sent.

    Attributes:
        head: number and header.
        arrays: the small ones' bytes.
        large: the others'.
        num_bytes: of all.
    """

    head: bytes
    arrays: list[memoryview]
    large: list[memoryview]
    num_bytes: int


class Message(NamedTuple):
    """A message that has come.

    Attributes:
        number: of the request that is made or answered.
        who: of a request, what is asked and of whom; of an answer, nothing.
        document: see `Codec`.
        arrays: what it counts.
    """

    number: int
    who: list[Any]
    document: Any
    arrays: list[np.ndarray]


class Sender(NamedTuple):
    """What every parcel says of who sends it.

    Attributes:
        process: a number that no other process of the run has.
        generation: of the run, as far as it knows.
        oldest: the number of its oldest request without an answer.
    """

    process: int
    generation: int
    oldest: int


class Parcel(NamedTuple):
    """What has come at a time.

    Attributes:
        messages: requests, or answers.
        acknowledged: numbers of requests whose answer says nothing more, and for how many seconds that was held back.
        sender: who sends it.
    """

    messages: list[Message]
    acknowledged: list[tuple[int, float]]
    sender: Sender


def letter(number: int, who: Sequence[Any], document: Any, arrays: Sequence[np.ndarray]) -> Letter:
    """A request, or an answer to one."""
    sent = [travelling(array) for array in arrays]
    header: bytes = msgpack.packb([who, document, [(_name(array.dtype), array.shape) for array in sent]])
    small = [bytes_of(array) for array in sent if 0 < array.nbytes < COPIED_BYTES]
    large = [bytes_of(array) for array in sent if array.nbytes >= COPIED_BYTES]
    num_bytes = _HEAD.size + len(header) + sum(len(one) for one in small) + sum(len(one) for one in large)
    return Letter(_HEAD.pack(number, len(header)) + header, small, large, num_bytes)


def parcel(
    letters: Sequence[Letter], acknowledged: Sequence[tuple[int, float]], sender: Sender
) -> list[bytes | memoryview]:
    """The frames of some letters and acknowledgements, as `Parcel` has them."""
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
    """Of an acknowledgement of so many requests."""
    return _HEAD.size + _ACKNOWLEDGEMENT.size * count


def opened(frames: Sequence[zmq.Frame]) -> Parcel:
    """What is in a parcel's frames; arrays are views of them."""
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
    """The dtype, and bytes. Checked once: shapes come again in every epoch."""
    spec = TensorSpec(dtype, shape)
    return spec.numpy, spec.nbytes


@functools.lru_cache(64)
def _name(dtype: np.dtype[Any]) -> str:
    return TensorSpec(dtype.name, ()).dtype
