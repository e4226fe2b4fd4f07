"""What a run is billed for and what its timeline shows, told as it happens; nothing that trains reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, final

from dorylax.pipeline.counters import Counters
from dorylax.pipeline.timeline import Resource, Span
from dorylax.pipeline.visit import Visit
from dorylax.serverless.controller import Call

Trace = Callable[[Span], None]
"""Takes what every task did."""


@final
class Recorder:
    """Counters of hosts, which may share one where they share a process; tells of what every task did.

    Args:
        labels: names of the tasks of the program, by number.
        trace: called with every span, about in the order in which they end; None: what was done is only counted.

    Attributes:
        counters: how much was done.
    """

    def __init__(self, labels: Mapping[int, str], trace: Trace | None) -> None:
        self.counters = Counters()
        self._labels, self._trace = labels, trace
        self._before = 0.0

    def go_on(self, counters: Mapping[str, Any], trace: Trace | None, seconds: float) -> None:
        """Goes on from what an earlier process of the run had counted, in whose trace is what came before training.

        Args:
            counters: as `Counters.restore` takes them.
            trace: as above, from now on.
            seconds: of the run when the clock was at 0: they are added to the times of spans.
        """
        self.counters.restore(counters)
        self._trace, self._before = trace, seconds

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
        self._tell(Span(name, resource, server, visit.number, visit.epoch, *times, task))

    def calls(self, server: int) -> Callable[[Call], None]:
        """What notes the calls of one server's tensor tasks: all are billed, whatever became of them."""

        def record(call: Call) -> None:
            self.counters.call(call)
            if call.outcome != "answered":
                key = call.key
                name = f"{self._labels[key.stage]} ({call.outcome})"
                self._tell(Span(name, "tensor", server, key.interval, key.epoch, call.start, call.end, key.stage))

        return record

    def update(self, server: int, version: int, times: tuple[float, float]) -> None:
        """Notes an optimizer step; the gradients in it may be of several epochs."""
        self._tell(Span("WU", "parameters", server, -1, -1, *times, version=version))

    def predict(self, server: int, version: int, times: tuple[float, float]) -> None:
        """Notes that weights to come were predicted of a version."""
        self._tell(Span("predict", "parameters", server, -1, -1, *times, version=version))

    def finish(self, server: int, interval: int, epoch: int, times: tuple[float, float]) -> None:
        """Notes that a parameter server has made an interval's complete gradient."""
        self._tell(Span("finish", "parameters", server, interval, epoch, *times))

    def _tell(self, span: Span) -> None:
        if self._trace is not None:
            self._trace(span.later(self._before) if self._before else span)
