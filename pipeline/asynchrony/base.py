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
    """

    counts: np.ndarray
    own: int
    local: np.ndarray


@runtime_checkable
class Freshness(Protocol):
    """Decides how much of what an interval reads has to be of its own epoch, beyond what the staleness bound asks for."""

    def quorum(self, read: BlocksRead) -> Quorum | None:
        """What is waited for before the first read of an epoch; None for nothing."""
        ...
