"""The contracts of what asynchronous training is made of."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from dorylax.pipeline.stamps import Quorum


class BlocksRead(NamedTuple):
    """What an interval reads of a buffer, in every epoch.

    Attributes:
        counts: int64 `[B]`, how many different rows of each block.
        own: which block holds what it has written itself.
        local: bool `[B]`, which blocks are of intervals of its own server.
        blocks: int64 `[B]`, how many blocks each stands for, where one may stand for several; None: for itself.
    """

    counts: np.ndarray
    own: int
    local: np.ndarray
    blocks: np.ndarray | None = None


@runtime_checkable
class Freshness(Protocol):
    """Decides how much of what an interval reads has to be of its own epoch, beyond what the staleness bound asks for."""

    def quorum(self, read: BlocksRead) -> Quorum | None:
        """What is waited for before the first read of an epoch; None for nothing."""
        ...


@runtime_checkable
class Reception(Protocol):
    """Decides what becomes of rows that a peer has sent: how far they replace those that came before them."""

    def weights(self, times: np.ndarray) -> np.ndarray:
        """The share of what has come in what is held from now on; the rest is what was held. 1: all is replaced.

        Args:
            times: int64 `[B]`, ≥ 1: of each block, how often rows have come since they had to be exact, these included.

        Returns:
            float64 `[B]`, 0 to 1; 1 where `times` is 1.
        """
        ...
