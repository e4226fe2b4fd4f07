"""What every host of a run is given, wherever it lives: nothing in it is the state of another host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dorylax import aligned
from dorylax.clock import Clock
from dorylax.cost import TimeModel
from dorylax.hollow import hollow
from dorylax.pipeline.asynchrony import Asynchrony
from dorylax.pipeline.plan import Plan
from dorylax.pipeline.stages import StageSizes
from dorylax.pipeline.transport import Transport
from dorylax.pipeline.transport.base import Role
from dorylax.pipeline.transport.window import Window


class HostContext(NamedTuple):
    """What hosts share.

    Attributes:
        plan: the steps.
        sizes: rows of each call of a stage.
        edge_chunk: edges of a chunk.
        homes: the graph server of each interval of the whole graph.
        parameter_servers: how many there are.
        one_at_a_time: whether a server runs only one task of any kind at a time (`no-pipe`).
        copies_rows: whether intervals copy the rows of neighbours that they read again (asynchronous training).
        asynchrony: what intervals wait for, and what becomes of rows of peers, in asynchronous epochs.
        transport: between servers.
        clock: where time comes from.
        times: how long things take in virtual time; None on the real clock.
        role: of the addresses at which hosts exchange rows.
        window: how much may be on its way at a time; None where messages are not copied.
        hollow: whether values have shapes and no numbers (`dorylax.hollow`): only times are of interest.
    """

    plan: Plan
    sizes: StageSizes
    edge_chunk: int
    homes: tuple[int, ...]
    parameter_servers: int
    one_at_a_time: bool
    copies_rows: bool
    asynchrony: Asynchrony
    transport: Transport
    clock: Clock
    times: TimeModel | None
    role: Role = "graph"
    window: Window | None = None
    hollow: bool = False

    @property
    def empty(self) -> Callable[[tuple[int, ...], Any], np.ndarray]:
        """Makes arrays for results."""
        return hollow if self.hollow else aligned.empty
