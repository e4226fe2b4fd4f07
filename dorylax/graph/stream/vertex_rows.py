"""Arrays with a row per vertex in files: `.npy`, an array of an archive (`FILE.npz:NAME`), or lines of numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dorylax.graph.mapped import release
from dorylax.graph.rows import spans
from dorylax.graph.stream.readers.npy import mapped_array
from dorylax.graph.stream.readers.npz import MemberRows, opened_archive
from dorylax.graph.stream.readers.text import NumberTable
from dorylax.graph.validate import GraphError

_PIECE = 1 << 22  # elements that are read at once


class Rows(NamedTuple):
    """An array in a file.

    Attributes:
        path: the file.
        dtype: of its elements.
        row: the shape of one vertex's.
        size: rows; None of text, where only reading tells.
        member: the name of the array, of an archive.
    """

    path: Path
    dtype: np.dtype[Any]
    row: tuple[int, ...]
    size: int | None
    member: str = ""

    @classmethod
    def of(cls, place: Path) -> Rows:
        """Of what a user gives.

        Raises:
            GraphError: the file is damaged, or holds no real numbers.
            OSError: it cannot be read.
        """
        name, colon, member = str(place).rpartition(":")
        if colon and name.endswith(".npz"):
            with opened_archive(Path(name)) as archive:
                array = MemberRows(archive, member)
                found = cls(Path(name), array.dtype, array.shape[1:], _rows(array.shape, place), member)
        elif place.suffix == ".npy":
            mapped = mapped_array(place)
            found = cls(place, mapped.dtype, mapped.shape[1:], _rows(mapped.shape, place))
        elif place.suffix == ".npz":
            raise GraphError(f"{place} is an archive: say which of its arrays, as {place}:features")
        else:
            table = NumberTable(place)
            found = cls(place, table.dtype, (table.width,), None)
        if found.dtype.kind not in "fiub":
            raise GraphError(f"{place} must hold real numbers, got {found.dtype}")
        return found

    def pieces(self) -> Iterator[np.ndarray]:
        """Rows from the first to the last, `[n, …]`.

        Raises:
            GraphError: the file is damaged, or a line is wrong.
            OSError: it cannot be read.
        """
        at_once = max(1, _PIECE // max(1, int(np.prod(self.row))))
        if self.size is None:
            yield from NumberTable(self.path).pieces()
        elif self.member:
            with opened_archive(self.path) as archive:
                array = MemberRows(archive, self.member)
                for start, stop in spans(self.size, at_once):
                    yield array.take(stop - start)
        else:
            mapped = mapped_array(self.path)
            for start, stop in spans(self.size, at_once):
                yield mapped[start:stop]
                release(mapped)

    def whole(self) -> np.ndarray:
        """All rows, in memory where they are not mapped."""
        if self.size is not None and not self.member:
            return mapped_array(self.path)
        empty = np.zeros((0, *self.row), self.dtype)
        return np.concatenate([empty, *(piece.copy() for piece in self.pieces())])


def _rows(shape: tuple[int, ...], place: Path) -> int:
    if not shape:
        raise GraphError(f"{place} is a single value: expected an array with a row per vertex")
    return shape[0]
