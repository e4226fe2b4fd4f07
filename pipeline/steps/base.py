"""The contract of steps."""

from __future__ import annotations

from typing import Protocol

from dorylax.pipeline.graph_server import GraphServer
from dorylax.pipeline.visit import Visit
from dorylax.program.tasks.steps import Step


class RunStep(Protocol):
    """Runs one step of an interval."""

    async def __call__(self, server: GraphServer, step: Step, visit: Visit) -> None:
        """Computes what the step writes, into `visit.values`.

        Args:
            server: who has the interval.
            step: what to run.
            visit: for which interval and epoch.

        Raises:
            TaskFailedError: a tensor task failed too often.
        """
        ...
