"""Parts of a checkpoint that are a file each, written and read by the process whose arrays they hold.

    hosts/<name>.npz    arrays of one writer: those of NumPy's own dtypes as they are, others as bytes

What a part's arrays are is in the checkpoint's record, and what its file holds in the manifest: who reads it is told both.
"""

from __future__ import annotations

import contextlib
import math
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, final, runtime_checkable

import numpy as np

from dorylax.durable import write_file
from dorylax.storage.base import Content, Storage, check_content, content_of
from dorylax.storage.choose import open_storage
from dorylax.storage.local import LocalStorage

FOLDER = "hosts/"
"""What names of parts' files begin with."""


class Part(NamedTuple):
    """A part that is stored.

    Attributes:
        place: the folder of its checkpoint, as `open_storage` takes it.
        file: its name there.
        size: of the file, in bytes.
        sha256: of the file.
        arrays: name → `shape` and `dtype`; JSON values.
    """

    place: str
    file: str
    size: int
    sha256: str
    arrays: dict[str, Any]


@runtime_checkable
class PartsWriter(Protocol):
    """Who can have the parts of a checkpoint written."""

    def write(self, place: str) -> Mapping[str, Part]:
        """Has every part written, by `write_part`.

        Args:
            place: the folder of the new checkpoint; a local one is there, and in it `hosts/`.

        Returns:
            The parts by name.

        Raises:
            OSError: one could not be written.
            DorylaxError: who was to write it is gone.
        """


@final
class CopiedParts:
    """A `PartsWriter` of parts that another checkpoint has."""

    def __init__(self, parts: Mapping[str, Part]) -> None:
        self._parts = parts

    def write(self, place: str) -> Mapping[str, Part]:
        """See `PartsWriter`."""
        return {name: write_part(place, name, read_part(part)) for name, part in self._parts.items()}


def write_part(place: str, name: str, arrays: Mapping[str, np.ndarray]) -> Part:
    """Writes a part, at once.

    Args:
        place: the folder of a checkpoint.
        name: of the part.
        arrays: by name.

    Raises:
        OSError: it cannot be written.
        AwsError: S3 cannot be asked.
    """
    file = f"{FOLDER}{name.replace(' ', '-')}.npz"
    kept = {key: np.asarray(array) for key, array in arrays.items()}
    index = {key: {"shape": list(array.shape), "dtype": array.dtype.name} for key, array in kept.items()}
    # Of dtypes of ml_dtypes, for which it is 2, NumPy's files keep no name.
    stored = {key: array if array.dtype.isbuiltin == 1 else _bytes_of(array) for key, array in kept.items()}
    with contextlib.closing(open_storage(place)) as storage:
        if isinstance(storage, LocalStorage):
            path = storage.path(file)
            write_file(path, lambda out: np.savez(out, **stored))  # type: ignore[arg-type]
            content = content_of(path)
        else:
            with tempfile.TemporaryDirectory(prefix="dorylax-part-") as folder:
                path = Path(folder) / "part.npz"
                np.savez(path, **stored)  # type: ignore[arg-type]
                content = storage.put_file(file, path)
    return Part(place, file, *content, index)


def read_part(part: Part) -> dict[str, np.ndarray]:
    """The arrays of a part, bit for bit, in memory of their own.

    Raises:
        OtherContentError: the file is not what was written.
        OSError: it cannot be read.
        AwsError: S3 cannot be asked.
    """
    with contextlib.ExitStack() as stack:
        storage = stack.enter_context(contextlib.closing(open_storage(part.place)))
        path = stack.enter_context(_file_of(storage, part))
        archive = stack.enter_context(np.load(path))
        return {key: _array(archive[key], entry) for key, entry in part.arrays.items()}


@contextlib.contextmanager
def _file_of(storage: Storage, part: Part) -> Iterator[Path]:
    content = Content(part.size, part.sha256)
    if isinstance(storage, LocalStorage):
        path = storage.path(part.file)
        check_content(path, content, str(path))
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="dorylax-part-") as folder:
        path = Path(folder) / "part.npz"
        storage.fetch(part.file, path, content)
        yield path


def _bytes_of(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _array(stored: np.ndarray, entry: Mapping[str, Any]) -> np.ndarray:
    dtype, shape = np.dtype(entry["dtype"]), tuple(entry["shape"])
    found = stored if stored.dtype == dtype else stored[: dtype.itemsize * math.prod(shape)].view(dtype)
    return np.array(found.reshape(shape))
