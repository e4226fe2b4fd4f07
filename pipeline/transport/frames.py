"""A message of the transport between processes as frames of ZeroMQ, and back.

A message is

    number of the request, 8 bytes | bytes of the header, 4 | header, JSON | each small array, from a multiple of 8 bytes on

and a frame for each large array. Every frame costs a call of ZeroMQ, on either side, so small arrays are copied together;
ZeroMQ sends large ones from where they lie. A message without a header acknowledges: its rest are numbers too.
"""

from __future__ import annotations

import functools
import json
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import zmq

from dorylax.serverless.wire.tensors import TensorSpec, bytes_of, travelling

COPIED_BYTES = 1 << 18
"""Of an array that is copied: a frame that is not costs the sender a call of another thread, when it has been sent."""

_HEAD = struct.Struct("<QI")
_ALIGNED = 8


class Message(NamedTuple):
    """What has come.

    Attributes:
        numbers: of requests: the one that is asked or answered; several where they are acknowledged.
        who: of a request, what is asked and of whom; of an answer, nothing.
        document: see `Codec`; None where requests are acknowledged.
        arrays: what it counts.
    """

    numbers: Sequence[int]
    who: list[Any]
    document: Any
    arrays: list[np.ndarray]


def message(number: int, who: Sequence[Any], document: Any, arrays: Sequence[np.ndarray]) -> list[bytes | memoryview]:
    """The frames of a request, or of its answer."""
    sent = [travelling(array) for array in arrays]
    specs = [(_name(array.dtype), array.shape) for array in sent]
    header = json.dumps([who, document, specs]).encode()
    parts: list[bytes | memoryview] = [_HEAD.pack(number, len(header)), header]
    large: list[bytes | memoryview] = []
    end = _HEAD.size + len(header)
    for array in sent:
        if array.nbytes >= COPIED_BYTES:
            large.append(bytes_of(array))
        elif array.nbytes:
            gap = -end % _ALIGNED
            parts += (bytes(gap), bytes_of(array))
            end += gap + array.nbytes
    return [b"".join(parts), *large]


def acknowledgement(numbers: Sequence[int]) -> bytes:
    """The only frame of what acknowledges these requests, one at least."""
    return _HEAD.pack(numbers[0], 0) + np.asarray(numbers[1:], "<u8").tobytes()


def opened(frames: Sequence[zmq.Frame]) -> Message:
    """The message in its frames; its arrays are views of them."""
    first = frames[0].buffer
    number, length = _HEAD.unpack_from(first)
    end = _HEAD.size + length
    if not length:
        return Message([number, *np.frombuffer(first, "<u8", offset=end).tolist()], [], None, [])
    who, document, specs = json.loads(bytes(first[_HEAD.size : end]))
    large = iter(frames[1:])
    arrays = []
    for dtype, shape in specs:
        spec = _spec(dtype, tuple(shape))
        size = spec.nbytes
        if size >= COPIED_BYTES:
            content = np.frombuffer(next(large).buffer, np.uint8)
        elif size:
            end += -end % _ALIGNED
            content = np.frombuffer(first, np.uint8, size, end)
            end += size
        else:
            content = np.empty(0, np.uint8)
        arrays.append(content.view(spec.numpy).reshape(spec.shape))
    return Message([number], who, document, arrays)


@functools.lru_cache(4096)
def _spec(dtype: str, shape: tuple[int, ...]) -> TensorSpec:
    """Checked once: shapes come again in every epoch."""
    return TensorSpec(dtype, shape)


@functools.lru_cache(64)
def _name(dtype: np.dtype[Any]) -> str:
    return TensorSpec(dtype.name, ()).dtype
