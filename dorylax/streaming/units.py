"""Units: the consecutive rows that are read, computed and written together.

Their size depends on the graph and on the widths of rows, never on how much memory there is: sums are added up unit by unit,
so a run gives the same bits under every limit.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import final

import numpy as np

MOST_ROWS = 131_072
"""Rows of vertices in a unit; a fifth of these costs system time, and more of them memory, without being faster."""
MOST_ENTRIES = 1 << 22
"""Edges in a unit where nothing has rows of edges: 16 MiB of index."""
MOST_EDGE_ROWS = 1 << 20
"""Edges in a unit where something has."""
_UNIT_BYTES = 16 << 20
_EDGE_BYTES = 8 << 20
_FEWEST_ROWS = 4096
_CLASSES = 4


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Units:
    """A cut of all rows.

    Attributes:
        vertices: unit k is rows `vertices[k]:vertices[k + 1]`, int64 `[K+1]`.
        edges: and the in-edges of these vertices, slots `edges[k]:edges[k + 1]`.
    """

    vertices: np.ndarray
    edges: np.ndarray

    def __len__(self) -> int:
        return len(self.vertices) - 1

    def bounds(self, space: str, unit: int) -> tuple[int, int]:
        """First row of a unit, and the one after its last."""
        bounds = self.vertices if space == "vertex" else self.edges
        return int(bounds[unit]), int(bounds[unit + 1])

    def largest(self, space: str) -> int:
        """Rows of the largest unit."""
        return self._largest[space]

    @cached_property
    def _largest(self) -> dict[str, int]:
        return {"vertex": int(np.diff(self.vertices).max()), "edge": int(np.diff(self.edges).max())}

    def padded(self, unit: int) -> int:
        """Rows of vertices that a stage's call takes for a unit: one of few sizes, so that few functions are compiled."""
        first, last = self.bounds("vertex", unit)
        return padded(last - first, self.largest("vertex"), _CLASSES)


def padded(count: int, largest: int, classes: int) -> int:
    """The smallest size for so many rows, of the largest one and its quarters.

    Args:
        count: rows.
        largest: rows at most.
        classes: how many sizes there are.
    """
    size = largest
    for _ in range(classes - 1):
        if -(-size // 4) < count:
            break
        size = -(-size // 4)
    return size


def most_rows(widest: int) -> int:
    """How many rows of vertices a unit may have.

    Args:
        widest: bytes of the widest row that is read or written.
    """
    return min(MOST_ROWS, max(_FEWEST_ROWS, _UNIT_BYTES // max(1, widest)))


def most_entries(widest: int) -> int:
    """How many edges a unit may have.

    Args:
        widest: bytes of the widest row of an edge that is made; 0 where nothing has rows of edges.
    """
    return min(MOST_EDGE_ROWS, _EDGE_BYTES // widest) if widest else MOST_ENTRIES


def cut(offsets: np.ndarray, rows: int, entries: int) -> Units:
    """Cuts rows so that a unit has so many rows and entries at most; a row is never cut.

    Args:
        offsets: of the in-edges, int64 `[V+1]`.
        rows: at most.
        entries: at most, but where a single row has more.
    """
    count = len(offsets) - 1
    bounds = [0]
    while bounds[-1] < count:
        first = bounds[-1]
        window = offsets[first : first + rows + 1]
        fits = int(np.searchsorted(window, int(window[0]) + entries, side="right")) - 1
        bounds.append(first + max(1, min(fits, len(window) - 1)))
    marks = np.array(bounds, np.int64)
    return Units(marks, np.asarray(offsets[marks], np.int64))
