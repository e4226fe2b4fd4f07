"""The native library of this folder: finding and declaring it. Where there is none, NumPy and Python do the same, slower."""

from __future__ import annotations

import ctypes
import functools

import numpy as np

from dorylax.native_library import candidates, is_off

_ABI = 1  # of kernel/sort.cc; a library of another number is left alone


def library() -> ctypes.CDLL | None:
    """The library; None where there is none, or the environment turns it off."""
    return None if is_off() else _load()


def address(array: np.ndarray | None) -> int | None:
    """Of an array's first byte, as C has it."""
    return None if array is None else array.ctypes.data


@functools.cache
def _load() -> ctypes.CDLL | None:
    for path in candidates("graph/stream", "libdorylax_stream"):
        try:
            found = ctypes.CDLL(str(path))
            if found.dorylax_stream_abi() == _ABI:
                _declare(found)
                return found
        except (OSError, AttributeError):
            continue
    return None


def _declare(found: ctypes.CDLL) -> None:
    pointer, number, size = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
    found.dorylax_stream_sort.argtypes = [size, *[pointer] * 4]
    found.dorylax_stream_sort.restype = number
    found.dorylax_stream_gather.argtypes = [size, size, *[pointer] * 3]
    found.dorylax_stream_gather.restype = None
    found.dorylax_stream_merge.argtypes = [number, *[pointer] * 3, size, pointer, pointer]
    found.dorylax_stream_merge.restype = None
    found.dorylax_stream_parse.argtypes = [
        *(ctypes.c_char_p, size, number, number),
        *(pointer, pointer, ctypes.c_uint64, pointer),
    ]
    found.dorylax_stream_parse.restype = size
    found.dorylax_stream_hash.argtypes = [size, ctypes.c_char_p, pointer, ctypes.c_uint64]
    found.dorylax_stream_hash.restype = None
