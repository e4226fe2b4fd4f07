"""What a run is billed for and what its timeline shows, told as it happens; nothing that trains reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import final

from dorylax.pipeline.counters import Counters
from dorylax.pipeline.timeline import Resource, Span, Timeline
from dorylax.pipeline.visit import Visit
from dorylax.serverless.controller import Call


@final
class Recorder:
    """Counters and timeline of hosts, which may share one where they share a process.

    Args:
        labels: names of the tasks of the program, by number.
        trace: keep what every task did; else only count.

    Attributes:
        counters: how much was done.
        timeline: when.
    """

    def __init__(self, labels: Mapping[int, str], *, trace: bool) -> None:
        self.counters, self.timeline = Counters(), Timeline(recording=trace)
        self._labels = labels

    def task(
        self,
        name: str,
        resource: Resource,
        server: int,
        visit: Visit,
        *,
        times: tuple[float, float],
        task: int | None = None,
    ) -> None:
        """Notes something that was done for an interval."""
        self.timeline.add(Span(name, resource, server, visit.number, visit.epoch, *times, task))

    def calls(self, server: int) -> Callable[[Call], None]:
        """What notes the calls of one server's tensor tasks: all are billed, whatever became of them."""

        def record(call: Call) -> None:
            self.counters.call(call)
            if call.outcome != "answered":
                key = call.key
                name = f"{self._labels[key.stage]} ({call.outcome})"
                span = Span(name, "tensor", server, key.interval, key.epoch, call.start, call.end, key.stage)
                self.timeline.add(span)

        return record

    def update(self, server: int, version: int, times: tuple[float, float]) -> None:
        """Notes an optimizer step; the gradients in it may be of several epochs."""
        self.timeline.add(Span("WU", "parameters", server, -1, -1, *times, version=version))

    def predict(self, server: int, version: int, times: tuple[float, float]) -> None:
        """Notes that weights to come were predicted of a version."""
        self.timeline.add(Span("predict", "parameters", server, -1, -1, *times, version=version))

    def finish(self, server: int, interval: int, epoch: int, times: tuple[float, float]) -> None:
        """Notes that a parameter server has made an interval's complete gradient."""
        self.timeline.add(Span("finish", "parameters", server, interval, epoch, *times))
