"""Converts messages to ZeroMQ frames, and back.

A *bundle* is the unit of sending. Its first frame holds the version of the format and the sender (`Sender`), and then the
messages, each as

    number of the request, 8 bytes | bytes of the header, 4 | header, JSON | small arrays

A final message without a header acknowledges requests: their numbers, each with the delay of its acknowledgement in
seconds. The bytes of large arrays follow in frames of at most `PIECE_BYTES`. Each frame costs a ZeroMQ call on both sides,
so small arrays are copied into the first frame. ZeroMQ sends large arrays without a copy.

There are no checksums: CURVE authenticates each byte over tcp, and messages over ipc do not leave the machine's memory.
"""

from __future__ import annotations

import functools
import json
import math
import struct
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from dorylax import aligned
from dorylax.net.errors import WireError

COPIED_BYTES = 1 << 18
"""Bytes of small arrays per message. Freeing a frame of its own costs the sender a call from another thread."""

PIECE_BYTES = 1 << 20
"""Maximum bytes of a large array per frame. ZeroMQ sends heartbeats between frames, so a slow link does not look dead."""

MAX_BYTES = 1 << 30
"""Default limit of one transfer between a server and a worker in bytes."""

MAX_TENSORS = 4096
"""Limit of arrays per transfer between a server and a worker."""

Buffer = bytes | bytearray | memoryview

_FORMAT = b"dorylax\3"  # with the version; both ends must run the same release
_BUNDLE = struct.Struct(f"<{len(_FORMAT)}sQqQ")
_HEAD = struct.Struct("<QI")
_ACKNOWLEDGEMENT = struct.Struct("<Qf")
_DTYPES: dict[str, np.dtype[Any]] = {
    dtype.name: dtype
    for dtype in map(
        np.dtype,
        (
            *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
            *("float16", "float32", "float64", ml_dtypes.bfloat16),
        ),
    )
}
_MAX_AXES = 32
_MAX_ARRAY_BYTES = 2**62  # beyond any limit, but within 64 bits

if sys.byteorder != "little":
    raise ImportError("dorylax sends tensors as they lie in memory, little-endian: this machine is big-endian")


class Letter(NamedTuple):
    """An encoded message.

    Attributes:
        head: Number, header, and bytes of the small arrays.
        large: Bytes of the large arrays, in pieces.
        num_bytes: Total bytes.
    """

    head: list[Buffer]
    large: list[memoryview]
    num_bytes: int


class Message(NamedTuple):
    """A received message.

    Attributes:
        number: Number of the request, or of the request that it replies to.
        who: Kind of a request, and what else its handler needs; empty for a reply.
        document: JSON document.
        arrays: Arrays of the document: writable, and aligned to 64 bytes, which XLA reads in place.
    """

    number: int
    who: list[Any]
    document: Any
    arrays: list[np.ndarray]


class Sender(NamedTuple):
    """The sender of a bundle.

    Attributes:
        process: Unique number of the process within the run.
        generation: The process's current generation.
        oldest: Number of its oldest unanswered request.
    """

    process: int
    generation: int
    oldest: int


class Bundle(NamedTuple):
    """A received bundle.

    Attributes:
        messages: Requests and replies.
        acknowledged: Numbers of requests with empty replies, and the delay of each acknowledgement in seconds.
        sender: Sender of the bundle.
    """

    messages: list[Message]
    acknowledged: list[tuple[int, float]]
    sender: Sender


def contiguous(arrays: Sequence[np.ndarray], max_bytes: int | None = None) -> list[np.ndarray]:
    """Return arrays in row-major layout and native byte order, without copies if possible.

    Args:
        arrays: Arrays of any layout.
        max_bytes: Limit of their bytes in a transfer, which has at most `MAX_TENSORS` arrays. None: no limits.

    Raises:
        WireError: A dtype is unsupported (objects, texts, complex numbers), or the arrays exceed a limit.
    """
    if max_bytes is not None and len(arrays) > MAX_TENSORS:
        raise WireError(f"at most {MAX_TENSORS} arrays may be sent together, got {len(arrays)}")
    found = [_travelling(array) for array in arrays]
    for array in found:
        _checked(_name(array.dtype), array.shape)
    if max_bytes is not None and (nbytes := sum(array.nbytes for array in found)) > max_bytes:
        raise WireError(f"at most {max_bytes} bytes may be sent together, got {nbytes}")
    return found


def letter(number: int, who: Sequence[Any], document: Any, arrays: Sequence[np.ndarray] = ()) -> Letter:
    """Encode a request, or a reply to one. Do not write to its arrays before their arrival.

    Raises:
        WireError: A dtype is unsupported.
    """
    sent = contiguous(arrays)
    header = _write([who, document, [(_name(array.dtype), array.shape) for array in sent]]).encode("ascii")
    head: list[Buffer] = [_HEAD.pack(number, len(header)) + header]
    large: list[memoryview] = []
    for array, inline in zip(sent, _inline([array.nbytes for array in sent]), strict=True):
        if inline:
            head.append(_bytes_of(array))
        else:
            large += _pieces(_bytes_of(array))
    return Letter(head, large, sum(map(len, head)) + sum(map(len, large)))


def bundle(
    letters: Sequence[Letter], acknowledged: Sequence[tuple[int, float]] = (), sender: Sender | None = None
) -> list[Buffer]:
    """Return the frames of letters and acknowledgements; see `Bundle`. None stands for a sender without repeats."""
    parts: list[Buffer] = [_BUNDLE.pack(_FORMAT, *(sender or Sender(0, -1, 0)))]
    parts += (part for one in letters for part in one.head)
    if acknowledged:
        parts.append(_HEAD.pack(0, 0))
        parts += (_ACKNOWLEDGEMENT.pack(*one) for one in acknowledged)
    return [b"".join(parts), *(piece for one in letters for piece in one.large)]


def acknowledgement_bytes(count: int) -> int:
    """Return the bytes of an acknowledgement of `count` requests."""
    return _HEAD.size + _ACKNOWLEDGEMENT.size * count


def opened(frames: Sequence[Buffer], max_bytes: int | None = None) -> Bundle:
    """Decode the frames of a bundle.

    Args:
        frames: Received frames.
        max_bytes: Limit of the arrays of a message in bytes, checked before their allocation; there may be `MAX_TENSORS`.
            None: no limits.

    Raises:
        WireError: The frames are no bundle of this version, or the arrays exceed the limit.
    """
    try:
        return _opened(frames, max_bytes)
    except WireError:
        raise
    except (struct.error, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise WireError(f"a message cannot be read: {type(error).__name__}: {error}") from error


def _opened(frames: Sequence[Buffer], max_bytes: int | None) -> Bundle:
    if not frames:
        raise WireError("a message must have a header, got no frames")
    first, large = memoryview(frames[0]), iter(frames[1:])
    found, *sender = _BUNDLE.unpack_from(first)
    if found != _FORMAT:
        raise WireError(f"a message must begin with {_FORMAT!r}, got {found!r}: both ends must run the same release")
    messages: list[Message] = []
    acknowledged: list[tuple[int, float]] = []
    end, available = _BUNDLE.size, sum(map(len, frames))
    while end < len(first):
        number, length = _HEAD.unpack_from(first, end)
        end += _HEAD.size
        if not length:
            acknowledged = list(_ACKNOWLEDGEMENT.iter_unpack(first[end:]))
            break
        who, document, given = json.loads(str(first[end : end + length], "ascii"))
        end += length
        if not isinstance(who, list):
            raise WireError(f"a header must begin with a list, got {str(who)[:80]}")
        if max_bytes is not None and len(given) > MAX_TENSORS:
            raise WireError(f"a transfer must have at most {MAX_TENSORS} tensors, got {len(given)}")
        specs = [(*_checked(dtype, tuple(shape)), tuple(shape)) for dtype, shape in given]
        if max_bytes is not None and (total := sum(size for _, size, _ in specs)) > max_bytes:
            raise WireError(f"a transfer must have at most {max_bytes} bytes, got {total}")
        arrays = []
        for (dtype, size, shape), inline in zip(specs, _inline([size for _, size, _ in specs]), strict=True):
            if size > available:  # before the allocation
                raise WireError(f"the header tells of {size} bytes, got {available}")
            arrays.append(aligned.empty(shape, dtype))
            content = _bytes_of(arrays[-1])
            if inline:
                content[:] = first[end : end + size]
                end += size
            else:
                _fill(content, large)
        messages.append(Message(number, who, document, arrays))
    if next(large, None) is not None:
        raise WireError("the headers tell of fewer bytes than came")
    return Bundle(messages, acknowledged, Sender(*sender))


def _fill(content: memoryview, frames: Iterator[Buffer]) -> None:
    for piece in _pieces(content):
        frame = next(frames, b"")
        if len(frame) != len(piece):
            raise WireError(
                f"a frame of {len(content)} bytes of an array must have {len(piece)} bytes, got {len(frame)}"
            )
        piece[:] = frame


def _inline(sizes: Sequence[int]) -> Iterator[bool]:
    """Yield whether an array of a message lies in the first frame, by its bytes: small ones do, up to `COPIED_BYTES`."""
    total = 0
    for size in sizes:
        fits = total + size <= COPIED_BYTES
        total += size if fits else 0
        yield fits


def _pieces(content: memoryview) -> list[memoryview]:
    """Split the bytes of an array into frames (none for an empty array)."""
    return [content[first : first + PIECE_BYTES] for first in range(0, len(content), PIECE_BYTES)]


def _bytes_of(array: np.ndarray) -> memoryview:
    """Return the bytes of a contiguous array without a copy; writable if the array is."""
    # Through uint8, because bfloat16 lacks the buffer protocol.
    return array.reshape(-1).view(np.uint8).data


def _travelling(array: np.ndarray) -> np.ndarray:
    if array.flags.c_contiguous and array.dtype.isnative:
        return array
    # `ascontiguousarray` alone would add an axis to a scalar.
    return np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(array.shape)


@functools.lru_cache(4096)
def _checked(dtype: Any, shape: tuple[Any, ...]) -> tuple[np.dtype[Any], int]:
    """Return the dtype and the bytes of an array. Cached, because shapes repeat in every epoch."""
    if dtype not in _DTYPES:
        raise WireError(f"dtype must be one of {', '.join(_DTYPES)}, got {str(dtype)[:80]!r}")
    if len(shape) > _MAX_AXES or any(type(size) is not int or size < 0 for size in shape):
        raise WireError(f"a shape must have at most {_MAX_AXES} sizes ≥ 0, got {str(list(shape))[:80]}")
    found = _DTYPES[dtype]
    # NumPy multiplies the other axes of an empty tensor, too.
    if math.prod(size for size in shape if size) * found.itemsize > _MAX_ARRAY_BYTES:
        raise WireError(f"a tensor must have at most {_MAX_ARRAY_BYTES} bytes, got {dtype} {list(shape)}")
    return found, math.prod(shape) * found.itemsize


@functools.lru_cache(64)
def _name(dtype: np.dtype[Any]) -> str:
    return dtype.name


_write = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
