"""Lost servers of a run, and the cost of their loss: part of summary.json."""

from __future__ import annotations

import dataclasses
from typing import final


@final
@dataclasses.dataclass(frozen=True)
class Loss:
    """Servers in other processes that were lost together, or during the recovery from a loss.

    Attributes:
        generation: Number of losses so far, this one included.
        servers: Servers of the lost processes: "graph server 1", say.
        causes: Reasons why these processes count as lost, each once.
        epoch: First epoch trained afterwards.
        repeats: Whether that epoch had begun before the loss.
        wasted_seconds: Time from the end of the previous epoch to the detection of the loss; 0 if nothing is repeated.
        recovery_seconds: Time from the detection until all servers were replaced.
    """

    generation: int
    servers: list[str]
    causes: list[str]
    epoch: int
    repeats: bool
    wasted_seconds: float
    recovery_seconds: float
