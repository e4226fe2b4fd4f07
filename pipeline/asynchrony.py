"""Policies for the rows that intervals read in asynchronous training, beyond plain bounded staleness.

Each policy is a setting of the section `pipeline`. `dorylax.pipeline.parameters.prediction` chooses the weights of an
interval.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple, final

import numpy as np

from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.stamps import Quorum


class BlocksRead(NamedTuple):
    """Rows that an interval reads from a buffer in every epoch, in B blocks.

    Attributes:
        counts: int64 `[B]`, number of distinct rows read from each block.
        own: Block written by the interval itself.
        local: bool `[B]`, whether a block belongs to an interval of the same server.
        blocks: int64 `[B]`, number of blocks that each entry represents; None: one each.
    """

    counts: np.ndarray
    own: int
    local: np.ndarray
    blocks: np.ndarray | None = None


@final
class FreshShare:
    """Waits until a share of the read blocks, rounded up, is from the reader's epoch, in addition to the staleness bound.

    A share of 0 is plain bounded staleness (Dorylus, OSDI '21, section 5.2), a share of 1 the barrier of `pipe`. It cannot
    deadlock. All intervals have the same horizon, so other intervals can produce the awaited rows, and the lowest epoch in
    progress waits for no more than synchronous training does.

    Args:
        share: 0 to 1.
        local: count only blocks of the reader's own server: ghosts may be late (as in PipeGCN, ICLR '22).
    """

    def __init__(self, share: float, *, local: bool = False) -> None:
        self._share, self._local = Fraction(repr(float(share))), local

    def quorum(self, read: BlocksRead) -> Quorum | None:
        """Return the condition before the first read of an epoch; None for no wait."""
        counted = (read.counts > 0) & (read.local | (not self._local))
        counted[read.own] = False
        blocks = np.flatnonzero(counted)
        weights = np.ones(len(blocks), np.int64) if read.blocks is None else read.blocks[blocks]
        needed = math.ceil(self._share * int(weights.sum()))
        return Quorum(blocks, weights, needed) if needed else None


@final
class ExponentialMean:
    """Averages received rows over epochs, as PipeGCN (ICLR '22) does for ghosts' features and gradients.

    PipeGCN's mean starts from zero, `m = γ m + (1 - γ) x`. Here it is corrected like the moments of Adam, `m / (1 - γᵗ)`.
    In terms of the corrected mean h the step is `h + (x - h) (1 - γ) / (1 - γᵗ)`, which needs the count t and no second
    array.

    Args:
        decay: γ, 0 ≤ γ < 1; 0 keeps only the last rows.
    """

    def __init__(self, decay: float) -> None:
        self._decay = decay

    def weights(self, times: np.ndarray) -> np.ndarray:
        """Return the weight of received rows; the previous rows have one minus this weight.

        Args:
            times: int64 `[B]`, ≥ 1: number of receptions of each block since exact rows were required, including this one.

        Returns:
            float64 `[B]`, 0 to 1; 1 where `times` is 1.
        """
        shares: np.ndarray = (1 - self._decay) / (1 - self._decay ** times.astype(np.float64))
        return shares


class Asynchrony(NamedTuple):
    """Policies of graph servers.

    Attributes:
        freshness: Condition before an interval reads.
        reception: Weights of received rows; None: they replace the previous rows.
    """

    freshness: FreshShare
    reception: ExponentialMean | None

    @classmethod
    def of(cls, config: PipelineConfig) -> Asynchrony:
        """Return the policies of a configuration."""
        share = FreshShare(config.freshness or 0.0, local=config.freshness_of == "server")
        return cls(share, ExponentialMean(config.smoothing) if config.smoothing else None)
