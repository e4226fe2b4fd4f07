"""Arithmetic without rows that depends on what stages have computed: rare, and done where the interval is."""

from __future__ import annotations

from dorylax.pipeline.graph_server import GraphServer
from dorylax.pipeline.visit import Visit
from dorylax.program.tasks.steps import Step


async def run(server: GraphServer, step: Step, visit: Visit) -> None:
    """See `RunStep`."""
    results = server.functions[step.index](*(visit.value(var) for var in step.reads))
    visit.values.update(zip(step.writes, results, strict=True))
