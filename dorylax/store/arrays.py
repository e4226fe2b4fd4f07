"""Arrays in one stored file: the raw bytes of one array after the other, each at a multiple of 64 bytes.

The name of a file ends in random digits, so no writer replaces the file of another one: a late host of a lost cluster cannot
change a checkpoint. The index of a file (shape, dtype, and offset of each array) and its SHA-256 are in the manifest of its
checkpoint (`dorylax.store.checkpoint`).

Functions raise OSError if a file cannot be read or written, and RunError if S3 cannot be used at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import ml_dtypes  # noqa: F401 (gives NumPy the dtype bfloat16 and its relatives)
import numpy as np

from dorylax.store.base import Content
from dorylax.store.old_checkpoints import npz_arrays
from dorylax.store.places import open_storage

_ALIGNMENT = 64


class Part(NamedTuple):
    """A stored file of arrays.

    Attributes:
        place: Folder of its checkpoint, for `open_storage`.
        file: Name of the file there.
        size: Number of bytes of the file.
        sha256: SHA-256 of the file.
        arrays: Name → `shape`, `dtype`, and `offset` in bytes; JSON values.
    """

    place: str
    file: str
    size: int
    sha256: str
    arrays: dict[Any, Any]


PartsWriter: TypeAlias = Callable[[str], Mapping[str, Part]]
"""Writes the arrays of other processes into the folder of a new checkpoint, by `write_part`; returns the parts by name.

Raises OSError if a part cannot be written, DorylaxError if a process that holds arrays is gone.
"""


def write_part(place: str, name: str, arrays: Mapping[Any, Any]) -> Part:
    """Write NumPy or JAX arrays into a new file in the folder of a checkpoint.

    Args:
        place: The folder.
        name: Name of the part, with which the name of the file begins.
        arrays: Name → array.

    Raises:
        ValueError: The name of an array's dtype does not identify the dtype (texts, objects, foreign byte orders).
    """
    file = f"{name.replace(' ', '-')}-{secrets.token_hex(4)}.bin"
    index: dict[Any, dict[str, Any]] = {}
    digest, size = hashlib.sha256(), 0

    def fill(stream: BinaryIO) -> None:
        nonlocal size
        for key, given in arrays.items():
            array = np.asarray(given)
            kind = array.dtype
            if not (kind.isbuiltin and kind.isnative) or kind.hasobject:
                raise ValueError(f"an array of dtype {kind} cannot be stored")
            padding = bytes(-size % _ALIGNMENT)
            index[key] = {"shape": list(array.shape), "dtype": kind.name, "offset": size + len(padding)}
            data: Any
            for data in (padding, np.ascontiguousarray(array).reshape(-1).view(np.uint8)):
                stream.write(data)
                digest.update(data)
                size += len(data)

    with contextlib.closing(open_storage(place)) as storage:
        storage.put(file, fill)
    return Part(place, file, size, digest.hexdigest(), index)


def read_part(part: Part) -> dict[Any, np.ndarray]:
    """Read the arrays of a part, bit for bit, into new memory.

    Raises:
        StorageError: The file has other content.
        ValueError, KeyError, TypeError: The index is not of this file.
    """
    files = {part.file: Content(part.size, part.sha256)}
    with contextlib.closing(open_storage(part.place)) as storage, storage.verified("", files) as folder:
        path = folder / part.file
        if part.file.endswith(".npz"):
            return npz_arrays(path, part.arrays)
        return {name: _array(path, entry) for name, entry in part.arrays.items()}


def _array(path: Path, entry: Mapping[str, Any]) -> np.ndarray:
    dtype, shape = np.dtype(entry["dtype"]), tuple(entry["shape"])
    size, offset = dtype.itemsize * math.prod(shape), entry["offset"]
    if offset + size > path.stat().st_size:
        raise ValueError("an array of its index ends behind the file")
    data = np.fromfile(path, np.uint8, size, offset=offset)
    return np.reshape(data.view(dtype), shape)
