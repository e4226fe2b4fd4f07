"""What all graph servers of a run share, and what they are asked to compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from dorylax.clock import Clock
from dorylax.cost import TimeModel
from dorylax.pipeline.counters import Counters
from dorylax.pipeline.parameters import ParameterServers
from dorylax.pipeline.plan import Plan, Step
from dorylax.pipeline.stages import StageFunction, StageSizes
from dorylax.pipeline.timeline import Timeline
from dorylax.pipeline.transport import Transport
from dorylax.pipeline.visit import Visit


class Fabric(NamedTuple):
    """What all graph servers of a run share.

    Attributes:
        plan: the steps.
        sizes: rows of each call of a stage.
        functions: of stages and of the driver's tasks, by number.
        parameters: the parameter servers.
        transport: between servers.
        clock: where time comes from.
        times: how long things take in virtual time; None on the real clock.
        timeline: what ran when.
        counters: how much.
        chunk: edges of a chunk.
        keeps: whether intervals keep the rows of neighbours that they have read (asynchronous training).
        required: `epoch ->` the oldest epoch of rows that an interval in that epoch may read.
    """

    plan: Plan
    sizes: StageSizes
    functions: Mapping[int, StageFunction]
    parameters: ParameterServers
    transport: Transport
    clock: Clock
    times: TimeModel | None
    timeline: Timeline
    counters: Counters
    chunk: int
    keeps: bool
    required: Callable[[int], int]


class Job(NamedTuple):
    """Something for the threads of a graph server.

    Attributes:
        step: what it is part of.
        visit: for which interval and epoch.
        place: unlike that of any other job of this step and visit.
        flops: operations, an estimate.
        bytes: that it reads, an estimate.
        label: what it is called.
    """

    step: Step
    visit: Visit
    place: int
    flops: int
    bytes: int
    label: str
