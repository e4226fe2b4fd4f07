"""Freshness: a share of the rows that a gather reads must be from its epoch before the gather starts.

A share of 0 is plain bounded staleness (Dorylus, OSDI '21, section 5.2), a share of 1 the barrier of `pipe`. It cannot
deadlock. All intervals have the same horizon, so other intervals can produce the awaited rows, and the lowest epoch in
progress waits for no more than synchronous training does.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import final

import numpy as np

from dorylax.pipeline.asynchrony.base import BlocksRead
from dorylax.pipeline.stamps import Quorum


@final
class FreshShare:
    """Waits until a share of the read blocks, rounded up, is fresh.

    Args:
        share: 0 to 1.
        local: count only blocks of the reader's own server: ghosts may be late (as in PipeGCN, ICLR '22).
    """

    def __init__(self, share: float, *, local: bool = False) -> None:
        self._share, self._local = Fraction(repr(float(share))), local

    def quorum(self, read: BlocksRead) -> Quorum | None:
        """See `Freshness`."""
        counted = (read.counts > 0) & (read.local | (not self._local))
        counted[read.own] = False
        blocks = np.flatnonzero(counted)
        weights = np.ones(len(blocks), np.int64) if read.blocks is None else read.blocks[blocks]
        needed = math.ceil(self._share * int(weights.sum()))
        return Quorum(blocks, weights, needed) if needed else None
