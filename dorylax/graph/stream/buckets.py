"""Arrays that are dealt to files and read back file by file: how rows move farther than memory reaches.

The files are scratch: they live in a folder of their caller's, which outlives no run, and go as soon as they were read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, final

import numpy as np
from jaxtyping import Int64, Integer

from dorylax.aligned import empty

MOST = 1000
"""Files at once: each is open, and gets a piece of every block."""


@final
class Buckets:
    """So many files, numbered; a context in which they are open for writing.

    Args:
        folder: where.
        name: what their names begin with.
        number: how many, at most `MOST`.
    """

    def __init__(self, folder: Path, name: str, number: int) -> None:
        self._paths = [folder / f"{name}-{bucket}" for bucket in range(number)]
        self._files: list[BinaryIO] = []

    def __enter__(self) -> Buckets:
        with contextlib.ExitStack() as stack:
            self._files = [stack.enter_context(path.open("wb", buffering=0)) for path in self._paths]
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def deal(self, buckets: Integer[np.ndarray, " n"], take: Callable[[Int64[np.ndarray, " n"]], np.ndarray]) -> None:
        """Appends rows to their buckets, in their order.

        Args:
            buckets: of each row.
            take: gives the elements of the rows that it is given; called once per bucket that there is.

        Raises:
            OSError: the disk is full, say.
        """
        narrow = buckets.astype(np.uint16)  # which NumPy sorts by radix
        order = np.argsort(narrow, kind="stable")
        ends = np.cumsum(np.bincount(narrow, minlength=len(self._files)))
        start = 0
        for bucket, end in enumerate(ends.tolist()):
            if end > start:
                self.append(bucket, take(order[start:end]))
            start = end

    def append(self, bucket: int, array: np.ndarray) -> None:
        """Appends elements to a bucket.

        Raises:
            OSError: the disk is full, say.
        """
        left = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        while left:
            left = left[self._files[bucket].write(left) :]

    def read(self, bucket: int, dtype: np.dtype, *, keep: bool = False) -> np.ndarray:
        """All elements of a bucket, with one axis; its file goes unless it is to be kept."""
        path = self._paths[bucket]
        array = empty((path.stat().st_size // dtype.itemsize,), dtype)
        with path.open("rb", buffering=0) as file:
            left = array.view(np.uint8).data
            while left:
                left = left[file.readinto(left) :]
        if not keep:
            path.unlink()
        return array

    def remove(self) -> None:
        """Removes the files that are left."""
        for path in self._paths:
            path.unlink(missing_ok=True)

    def __len__(self) -> int:
        return len(self._paths)

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self._paths)))
