"""Slices: the rows of a unit with which one thread is done before it takes others.

A thread gathers, computes and adds up a slice from its first step to its last, so what is made on the way stays in a core's
cache, and the allocator has it again at once. Their size follows from the graph and the widths of rows alone, as that of
units does: sums are added up slice by slice.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from dorylax.streaming.units import Units, cut, padded

BYTES = 3 << 20
"""Of the widest value that is made, in a slice."""
ENTRIES = 1 << 20
"""Edges in a slice, about, and twice as many where rows are longer than most. A fourth of these cost a fifth of an epoch, in
calls of stages."""
EDGE_ROWS = 1 << 16
"""The same where something has rows of edges."""
EDGE_BYTES = 1 << 20
"""Of the widest of these, in a slice."""
_FEWEST_ROWS, _MOST_ROWS = 1024, 32_768
_CLASSES = 3


class Slices(NamedTuple):
    """How units are cut.

    Attributes:
        rows: of vertices in a slice, at most.
        entries: edges in a slice, at most, but where a single row has more.
    """

    rows: int
    entries: int

    def of(self, offsets: np.ndarray) -> list[tuple[int, int]]:
        """The slices of a unit: its first row and the one after its last, counted from the unit's first.

        Args:
            offsets: of the unit's in-edges, int64 `[R+1]`.
        """
        bounds = cut(offsets, self.rows, self.entries).vertices.tolist()
        return list(itertools.pairwise(bounds))

    def padded(self, count: int) -> int:
        """Rows that a stage's call takes for so many: one of few sizes, so that few functions are compiled."""
        return padded(count, self.rows, _CLASSES)


def slices_for(units: Units, widest: int, widest_edge: int) -> Slices:
    """Slices of about equal length, whatever the units are.

    Args:
        units: what is cut.
        widest: bytes of the widest row of a vertex that is made.
        widest_edge: bytes of the widest row of an edge that is made; 0 where nothing has rows of edges.
    """
    num_vertices, num_edges = int(units.vertices[-1]), int(units.edges[-1])
    entries = min(EDGE_ROWS, EDGE_BYTES // widest_edge) if widest_edge else ENTRIES
    wanted = min(_MOST_ROWS, max(_FEWEST_ROWS, BYTES // max(1, widest)))
    wanted = max(1, min(wanted, entries * num_vertices // max(1, num_edges)))
    most = units.largest("vertex")
    rows = -(-most // -(-most // wanted))
    return Slices(min(most, -(-rows // 16) * 16), max(1, min(2 * entries, units.largest("edge"))))
