"""The contracts of policies for asynchronous training."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

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


@runtime_checkable
class Freshness(Protocol):
    """Decides which share of an interval's rows must be from its epoch, in addition to the staleness bound."""

    def quorum(self, read: BlocksRead) -> Quorum | None:
        """Return the condition before the first read of an epoch; None for no wait."""
        ...


@runtime_checkable
class Reception(Protocol):
    """Decides how received rows replace the previous rows of a block."""

    def weights(self, times: np.ndarray) -> np.ndarray:
        """Return the weight of received rows; the previous rows have one minus this weight.

        Args:
            times: int64 `[B]`, ≥ 1: number of receptions of each block since exact rows were required, including this one.

        Returns:
            float64 `[B]`, 0 to 1; 1 where `times` is 1.
        """
        ...
