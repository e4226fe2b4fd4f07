"""Slices: parts of a unit's rows that one thread finishes before it takes others.

A thread gathers, computes and adds up a slice from its first step to its last. Intermediate values therefore stay in a
core's cache, and their memory is reused immediately. Slice sizes depend only on the graph and row widths, as unit sizes
do, because sums are added up slice by slice.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from dorylax.streaming.units import Units, cut, padded

BYTES = 3 << 20
"""Bytes of the widest value of a slice."""
ENTRIES = 1 << 20
"""Approximate edges of a slice; slices with long rows have up to twice as many. A fourth of these cost a fifth of an epoch,
in calls of stages."""
EDGE_ROWS = 1 << 16
"""Approximate edges of a slice if some value has rows of edges."""
EDGE_BYTES = 1 << 20
"""Bytes of the widest edge value of a slice."""
_FEWEST_ROWS, _MOST_ROWS = 1024, 32_768
_CLASSES = 3


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
        return padded(count, self.rows, _CLASSES)


def slices_for(units: Units, widest: int, widest_edge: int) -> Slices:
    """Return limits for slices of about equal length, for any units.

    Args:
        units: The units to cut.
        widest: Bytes of the widest vertex row that is made.
        widest_edge: Bytes of the widest edge row that is made; 0 if no value has rows of edges.
    """
    num_vertices, num_edges = int(units.vertices[-1]), int(units.edges[-1])
    entries = min(EDGE_ROWS, EDGE_BYTES // widest_edge) if widest_edge else ENTRIES
    wanted = min(_MOST_ROWS, max(_FEWEST_ROWS, BYTES // max(1, widest)))
    wanted = max(1, min(wanted, entries * num_vertices // max(1, num_edges)))
    most = units.largest("vertex")
    rows = -(-most // -(-most // wanted))
    return Slices(min(most, -(-rows // 16) * 16), max(1, min(2 * entries, units.largest("edge"))))
