"""Units, consecutive rows that are read, computed and written together; and slices, the parts of a unit.

One thread finishes a slice before it takes others: it gathers, computes and adds up the slice from its first step to its
last. Intermediate values therefore stay in a core's cache, and their memory is reused immediately.

Sizes depend on the graph and on row widths, never on the amount of memory. Sums are added up slice by slice and unit by
unit, so a run gives the same bits under every memory limit.
"""

from __future__ import annotations

import dataclasses
import itertools
from functools import cached_property
from typing import NamedTuple, final

import numpy as np

MOST_ROWS = 131_072
"""Maximum vertex rows of a unit. A fifth of these costs system time, and more of them cost memory without being faster."""
MOST_ENTRIES = 1 << 22
"""Maximum edges of a unit if no value has rows of edges: 16 MiB of index."""
MOST_EDGE_ROWS = 1 << 20
"""Maximum edges of a unit if some value has rows of edges."""
_UNIT_BYTES = 16 << 20
_EDGE_BYTES = 8 << 20
_FEWEST_ROWS = 4096
_CLASSES = 4
SLICE_BYTES = 3 << 20
"""Bytes of the widest value of a slice."""
SLICE_ENTRIES = 1 << 20
"""Approximate edges of a slice; slices with long rows have up to twice as many. A fourth of these cost a fifth of an epoch,
in calls of stages."""
SLICE_EDGE_ROWS = 1 << 16
"""Approximate edges of a slice if some value has rows of edges."""
SLICE_EDGE_BYTES = 1 << 20
"""Bytes of the widest edge value of a slice."""
_FEWEST_SLICE_ROWS, _MOST_SLICE_ROWS = 1024, 32_768
_SLICE_CLASSES = 3


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Units:
    """A cut of all rows.

    Attributes:
        vertices: Unit k has the rows `vertices[k]:vertices[k + 1]`, int64 `[K+1]`.
        edges: Unit k has the in-edges of these vertices, slots `edges[k]:edges[k + 1]`, int64 `[K+1]`.
    """

    vertices: np.ndarray
    edges: np.ndarray

    def __len__(self) -> int:
        return len(self.vertices) - 1

    def bounds(self, space: str, unit: int) -> tuple[int, int]:
        """Return the first row of a unit, and the one after its last."""
        bounds = self.vertices if space == "vertex" else self.edges
        return int(bounds[unit]), int(bounds[unit + 1])

    def largest(self, space: str) -> int:
        """Return the rows of the largest unit."""
        return self._largest[space]

    @cached_property
    def _largest(self) -> dict[str, int]:
        return {"vertex": int(np.diff(self.vertices).max()), "edge": int(np.diff(self.edges).max())}

    def padded(self, unit: int) -> int:
        """Padded number of vertex rows in a stage call for a unit: one of few sizes, so that few functions are compiled."""
        first, last = self.bounds("vertex", unit)
        return padded(last - first, self.largest("vertex"), _CLASSES)


def padded(count: int, largest: int, classes: int) -> int:
    """Return the smallest sufficient size among the largest one, its quarter, a quarter of that, and so on.

    Args:
        count: Number of rows, at most `largest`.
        largest: Largest size.
        classes: Number of sizes.
    """
    size = largest
    for _ in range(classes - 1):
        if -(-size // 4) < count:
            break
        size = -(-size // 4)
    return size


def most_rows(widest: int) -> int:
    """Return the maximum number of vertex rows of a unit.

    Args:
        widest: Bytes of the widest row that is read or written.
    """
    return min(MOST_ROWS, max(_FEWEST_ROWS, _UNIT_BYTES // max(1, widest)))


def most_entries(widest: int) -> int:
    """Return the maximum number of edges of a unit.

    Args:
        widest: Bytes of the widest row of an edge that is made; 0 if no value has rows of edges.
    """
    return min(MOST_EDGE_ROWS, _EDGE_BYTES // widest) if widest else MOST_ENTRIES


def cut(offsets: np.ndarray, rows: int, entries: int) -> Units:
    """Cut rows into units of limited numbers of rows and entries; a row is never cut.

    Args:
        offsets: Offsets of the in-edges, int64 `[V+1]`.
        rows: Maximum rows of a unit.
        entries: Maximum entries of a unit, unless a single row has more.
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


class Slices(NamedTuple):
    """Size limits of slices.

    Attributes:
        rows: Maximum vertex rows of a slice.
        entries: Maximum edges of a slice, unless a single row has more.
    """

    rows: int
    entries: int

    def of(self, offsets: np.ndarray) -> list[tuple[int, int]]:
        """Return the slices of a unit: first row and end row, counted from the unit's first.

        Args:
            offsets: Offsets of the unit's in-edges, int64 `[R+1]`.
        """
        bounds = cut(offsets, self.rows, self.entries).vertices.tolist()
        return list(itertools.pairwise(bounds))

    def padded(self, count: int) -> int:
        """Padded number of rows in a stage call: one of few sizes, so that few functions are compiled."""
        return padded(count, self.rows, _SLICE_CLASSES)


def slices_for(units: Units, widest: int, widest_edge: int) -> Slices:
    """Return limits for slices of about equal length, for any units.

    Args:
        units: The units to cut.
        widest: Bytes of the widest vertex row that is made.
        widest_edge: Bytes of the widest edge row that is made; 0 if no value has rows of edges.
    """
    num_vertices, num_edges = int(units.vertices[-1]), int(units.edges[-1])
    entries = min(SLICE_EDGE_ROWS, SLICE_EDGE_BYTES // widest_edge) if widest_edge else SLICE_ENTRIES
    wanted = min(_MOST_SLICE_ROWS, max(_FEWEST_SLICE_ROWS, SLICE_BYTES // max(1, widest)))
    wanted = max(1, min(wanted, entries * num_vertices // max(1, num_edges)))
    most = units.largest("vertex")
    rows = -(-most // -(-most // wanted))
    return Slices(min(most, -(-rows // 16) * 16), max(1, min(2 * entries, units.largest("edge"))))
