"""What a run has lost, and what that has cost: part of summary.json."""

from __future__ import annotations

import dataclasses
from typing import final


@final
@dataclasses.dataclass(frozen=True)
class Loss:
    """Servers in processes of their own that were lost together, or while the run recovered from a loss.

    Attributes:
        generation: of the run since: 1 after the first loss.
        servers: "graph server 1", say: all that lived in the processes that were lost.
        causes: why these processes count as lost, each cause once.
        epoch: the first that was trained afterwards.
        repeats: whether that epoch was under way before.
        wasted_seconds: since the epoch before it was finished, until the loss was noticed; 0 where nothing is repeated.
        recovery_seconds: from then on, until all servers were there again.
    """

    generation: int
    servers: list[str]
    causes: list[str]
    epoch: int
    repeats: bool
    wasted_seconds: float
    recovery_seconds: float
