"""Arrays in one stored file: the raw bytes of one array after the other, each at a multiple of 64 bytes.

The name of a file ends in random digits, so no writer replaces the file of another one: a late host of a lost cluster cannot
change a checkpoint. The index of a file (shape, dtype, and offset of each array) and its SHA-256 are in the manifest of its
checkpoint (`dorylax.store.checkpoint`).
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import secrets
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias, TypeVar

import ml_dtypes  # noqa: F401 (gives NumPy the dtype bfloat16 and its relatives)
import numpy as np

from dorylax.store.base import Content, Storage
from dorylax.store.old_checkpoints import npz_arrays
from dorylax.store.places import open_storage, verified

_ALIGNMENT = 64
_Key = TypeVar("_Key", bound=Hashable)


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
    arrays: dict[str, Any]


PartsWriter: TypeAlias = Callable[[str], Mapping[str, Part]]
"""Writes the arrays of other processes into the folder of a new checkpoint, by `write_part`; returns the parts by name.

Raises OSError if a part cannot be written, DorylaxError if a process that holds arrays is gone.
"""


def copy_parts(parts: Mapping[str, Part], place: str) -> dict[str, Part]:
    """Copy the parts of another checkpoint into the folder of a new one; errors as of `read_part` and `write_part`."""
    return {name: write_part(place, name, read_part(part)) for name, part in parts.items()}


def write_part(place: str, name: str, arrays: Mapping[str, Any]) -> Part:
    """Write one part of a checkpoint.

    Args:
        place: Folder of the checkpoint.
        name: Name of the part.
        arrays: Name → array.

    Raises:
        OSError: The file cannot be written.
        AwsError: S3 refuses the request.
    """
    with contextlib.closing(open_storage(place)) as storage:
        file, content, index = write_arrays(storage, name.replace(" ", "-"), arrays.values())
        return Part(place, file, *content, dict(zip(arrays, index, strict=True)))


def read_part(part: Part) -> dict[str, np.ndarray]:
    """Read the arrays of a part, bit for bit, into memory of their own.

    Raises:
        StorageError: The file is not as written.
        OSError: The file cannot be read.
        AwsError: S3 refuses the request.
    """
    with contextlib.closing(open_storage(part.place)) as storage:
        return read_arrays(storage, part.file, Content(part.size, part.sha256), part.arrays)


def write_arrays(storage: Storage, stem: str, arrays: Iterable[Any]) -> tuple[str, Content, list[dict[str, Any]]]:
    """Write a file of arrays.

    Args:
        storage: Storage of the file.
        stem: Start of its name.
        arrays: NumPy or JAX arrays.

    Returns:
        Name and content of the file, and the entry of each array for its index.

    Raises:
        OSError: The file cannot be written.
        ValueError: The name of an array's dtype does not identify the dtype (texts, objects, foreign byte orders).
    """
    name = f"{stem}-{secrets.token_hex(4)}.bin"
    index: list[dict[str, Any]] = []
    digest, size = hashlib.sha256(), 0

    def fill(file: BinaryIO) -> None:
        nonlocal size
        for data in _chunks(arrays, index):
            file.write(data)
            digest.update(data)
            size += len(data)

    storage.put(name, fill)
    return name, Content(size, digest.hexdigest()), index


def _chunks(arrays: Iterable[Any], index: list[dict[str, Any]]) -> Iterator[Any]:
    """Return the bytes of a file of arrays in pieces, and fill its index."""
    offset = 0
    for given in arrays:
        array = np.asarray(given)
        kind = array.dtype
        if not (kind.isbuiltin and kind.isnative) or kind.hasobject:
            raise ValueError(f"an array of dtype {kind} cannot be stored")
        padding = bytes(-offset % _ALIGNMENT)
        offset += len(padding)
        index.append({"shape": list(array.shape), "dtype": kind.name, "offset": offset})
        offset += array.nbytes
        yield padding
        yield np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def read_arrays(
    storage: Storage, name: str, content: Content, index: Mapping[_Key, Mapping[str, Any]]
) -> dict[_Key, np.ndarray]:
    """Read the arrays of a file, bit for bit.

    Args:
        storage: Storage of the file.
        name: Name of the file.
        content: Expected content.
        index: Entries of the arrays to read, by their names.

    Raises:
        StorageError: The file has other content.
        OSError: The file cannot be read.
        ValueError, KeyError, TypeError: The index is not of this file.
    """
    with verified(storage, name, content) as path:
        if name.endswith(".npz"):
            return npz_arrays(path, index)
        return {key: _array(path, entry) for key, entry in index.items()}


def _array(path: Path, entry: Mapping[str, Any]) -> np.ndarray:
    dtype, shape = np.dtype(entry["dtype"]), tuple(entry["shape"])
    size, offset = dtype.itemsize * math.prod(shape), entry["offset"]
    if offset + size > path.stat().st_size:
        raise ValueError("an array of its index ends behind the file")
    data = np.fromfile(path, np.uint8, size, offset=offset)
    return np.reshape(data.view(dtype), shape)
