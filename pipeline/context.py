"""The context of a host, in this process or another one. It contains no state of other hosts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dorylax import aligned
from dorylax.abstract_array import abstract_array
from dorylax.clock import Clock
from dorylax.cost import TimeModel
from dorylax.pipeline.asynchrony import Asynchrony
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.plan import Plan
from dorylax.pipeline.stages import StageSizes
from dorylax.pipeline.transport.base import Role, Transport
from dorylax.pipeline.transport.delivery import Window


class HostContext(NamedTuple):
    """Plan, settings and services shared by the hosts of a run.

    Attributes:
        plan: The plan.
        sizes: Numbers of rows per call of a stage.
        config: Settings of the pipeline.
        homes: Graph server of each interval of the whole graph.
        copies_rows: Whether intervals copy the rows of neighbors that they read again (asynchronous training).
        asynchrony: Policies of asynchronous epochs: waits of intervals, and the use of rows received from peers.
        transport: Transport between servers.
        clock: Clock of the run.
        times: Durations in virtual time; None on the real clock.
        role: Role of the addresses at which hosts exchange rows.
        window: Limit of the bytes in flight; None if messages are not copied.
        abstract: Whether values are abstract arrays (`dorylax.abstract_array`), for timing runs.
    """

    plan: Plan
    sizes: StageSizes
    config: PipelineConfig
    homes: tuple[int, ...]
    copies_rows: bool
    asynchrony: Asynchrony
    transport: Transport
    clock: Clock
    times: TimeModel | None
    role: Role = "graph"
    window: Window | None = None
    abstract: bool = False

    @property
    def empty(self) -> Callable[[tuple[int, ...], Any], np.ndarray]:
        """Allocator of arrays for results."""
        return abstract_array if self.abstract else aligned.empty
