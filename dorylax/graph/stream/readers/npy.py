"""Edges from one NumPy array: `[E, 2]`, a row per edge, or `[2, E]`, sources before targets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, final

import numpy as np

from dorylax.durable import named
from dorylax.graph.mapped import release
from dorylax.graph.npz import NPY_DAMAGE
from dorylax.graph.stream.readers.base import Chunk, EdgeReader, Values, Wanted, ends_of
from dorylax.graph.validate import GraphError


@final
class NpyReader(EdgeReader):
    """A file of `np.save`.

    Args:
        path: of the file.
        wanted: what to read of it.

    Raises:
        GraphError: it is damaged, or holds no edges.
        OSError: it cannot be read.
    """

    def __init__(self, path: Path, wanted: Wanted) -> None:
        self._path, self._wanted = path, wanted
        array = mapped_array(path)
        if array.ndim != 2 or 2 not in array.shape:
            raise GraphError(f"{path} must be edges [E, 2] or [2, E], got {array.dtype} {list(array.shape)}")
        if array.shape == (2, 2):
            raise GraphError(f"{path} is [2, 2], which may be [E, 2] or [2, E]: give three edges or more, or text")
        if wanted.values:
            raise GraphError(
                f"{path} has no column {next(iter(wanted.values))!r}: --edge-data takes values from a .npy"
            )
        self._array = array.T if array.shape[0] == 2 else array

    @property
    def path(self) -> Path:
        """See `EdgeReader`."""
        return self._path

    @property
    def values(self) -> Mapping[str, Values]:
        """See `EdgeReader`."""
        return {}

    def estimate(self) -> int:
        """See `EdgeReader`."""
        return len(self._array)

    def chunks(self, state: Any = None) -> Iterator[Chunk]:
        """See `EdgeReader`."""
        array = self._array
        width = 2 * array.dtype.itemsize
        size = max(1, self._wanted.piece // width)
        for start in range(state or 0, len(array), size):
            part = array[start : start + size]
            sources, targets = (ends_of(str(self._path), part[:, end].copy(), self._wanted) for end in (0, 1))
            release(array)

            def where(k: int, start: int = start) -> str:
                return f"{self._path}, edge {start + k:,}: {tuple(array[start + k].tolist())}"

            stop = start + len(part)
            yield Chunk(sources, targets, {}, where, stop, stop * width)


def mapped_array(path: Path) -> np.ndarray:
    """An array in a file, mapped and not read.

    Raises:
        GraphError: it is damaged, or no array.
        OSError: it cannot be read.
    """
    try:
        with named(path):
            array = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError:
        raise
    except NPY_DAMAGE as error:
        raise GraphError(f"{path} is no array of np.save, or is damaged ({error})") from None
    if not isinstance(array, np.ndarray):
        raise GraphError(f"{path} is an archive of arrays, expected one array of np.save")
    return array
