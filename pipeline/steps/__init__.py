"""The steps of an interval, a module for each kind.

A function of `RUN` computes the values that a step writes, into `IntervalPass.values`. It raises a `TaskFailedError` if a
tensor task failed too often.
"""

from collections.abc import Awaitable, Callable

from dorylax.pipeline.graph_server import GraphServer
from dorylax.pipeline.interval_pass import IntervalPass
from dorylax.pipeline.steps import gather, push, stage, total
from dorylax.program.tasks.steps import Step

RUN: dict[str, Callable[[GraphServer, Step, IntervalPass], Awaitable[None]]] = {
    "stage": stage.run,
    "gather": gather.run,
    "push": push.run,
    "driver": stage.run_without_rows,
    "sum": total.run,
}
"""By `Step.kind`."""

__all__ = ["RUN"]
