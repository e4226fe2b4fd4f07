"""What a run is billed for, what its servers did and what its timeline shows, told as it happens.

Nothing that trains reads it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, final

from dorylax.pipeline.buffers import Reads
from dorylax.pipeline.counters import Counters
from dorylax.pipeline.server_counts import EpochCounts, GraphCounts, ParameterCounts, add_up, lag_of
from dorylax.pipeline.timeline import Span
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
        graph: of each graph server here, epoch by epoch.
        parameters: likewise of each parameter server.
    """

    def __init__(self, labels: Mapping[int, str], trace: Trace | None) -> None:
        self.counters = Counters()
        self.graph = defaultdict[int, EpochCounts[GraphCounts]](lambda: EpochCounts(GraphCounts))
        self.parameters = defaultdict[int, EpochCounts[ParameterCounts]](lambda: EpochCounts(ParameterCounts))
        self._labels, self._trace = labels, trace
        self._before = 0.0

    def go_on(self, record: Mapping[str, Any], epoch: int, trace: Trace | None, seconds: float) -> None:
        """Goes on from what an earlier process of the run had counted, in whose trace is what came before training.

        Args:
            record: of `Saved`.
            epoch: the next.
            trace: as above, from now on.
            seconds: of the run when the clock was at 0: they are added to the times of spans.
        """
        self.counters.restore(record["counters"])
        self._trace, self._before = trace, seconds
        of_servers = record.get("servers", {})  # earlier versions had none
        for books, kind in ((self.graph, "graph"), (self.parameters, "parameter")):
            for server, saved in enumerate(of_servers.get(kind, ())):
                books[server].restore(epoch, saved)

    # Of graph servers.

    def graph_task(self, label: str, server: int, visit: Visit, *, times: tuple[float, float], task: int) -> None:
        """Notes a task that a graph server has run for an interval."""
        self.counters.graph_tasks += 1
        counts = self.graph[server].of(visit.epoch)
        counts.graph_tasks += 1
        counts.graph_seconds += times[1] - times[0]
        self._tell(Span(label, "graph", server, visit.number, visit.epoch, *times, task))

    def tensor_task(self, label: str, server: int, visit: Visit, *, times: tuple[float, float], task: int) -> None:
        """Notes a task that a worker has run for an interval."""
        self.counters.tensor_tasks += 1
        counts = self.graph[server].of(visit.epoch)
        counts.tensor_tasks += 1
        counts.tensor_seconds += times[1] - times[0]
        self._tell(Span(label, "tensor", server, visit.number, visit.epoch, *times, task))

    def message(self, label: str, server: int, visit: Visit, *, times: tuple[float, float], num_bytes: int) -> None:
        """Notes a message of an interval to another graph server."""
        counts = self.graph[server].of(visit.epoch)
        for total in (self.counters, counts):
            total.messages += 1
            total.message_bytes += num_bytes
        self._tell(Span(label, "network", server, visit.number, visit.epoch, *times))

    def read(self, server: int, visit: Visit, found: Reads) -> None:
        """Notes rows that an interval has read."""
        if lags := lag_of(visit.epoch, found):
            add_up(self.counters.rows_by_lag, lags)
            add_up(self.graph[server].of(visit.epoch).rows_by_lag, lags)

    def calls(self, server: int) -> Callable[[Call], None]:
        """What notes the calls of one server's tensor tasks: all are billed, whatever became of them."""

        def record(call: Call) -> None:
            key = call.key
            self.counters.call(call)
            add_up(self.graph[server].of(key.epoch).calls, {call.outcome: 1})
            if call.outcome != "answered":
                name = f"{self._labels[key.stage]} ({call.outcome})"
                self._tell(Span(name, "tensor", server, key.interval, key.epoch, call.start, call.end, key.stage))

        return record

    # Of parameter servers.

    def pull(self, server: int, epoch: int, *, held: bool, num_bytes: int, stashes: int) -> None:
        """Notes that an interval in this epoch got weights, and how many hold some now."""
        self.counters.pulls_held += held
        counts = self.parameters[server].of(epoch)
        counts.pulls += 1
        counts.pulls_held += held
        counts.bytes_sent += num_bytes
        counts.stashes_max = max(counts.stashes_max, stashes)

    def push(self, server: int, epoch: int, num_bytes: int) -> None:
        """Notes a part of a gradient that has come."""
        counts = self.parameters[server].of(epoch)
        counts.pushes += 1
        counts.bytes_received += num_bytes

    def passed_on(self, server: int, epoch: int, num_bytes: int) -> None:
        """Notes a gradient, or updates, that a parameter server has sent to another."""
        self.parameters[server].of(epoch).bytes_sent += num_bytes

    def update(
        self, server: int, epoch: int, version: int, times: tuple[float, float], gate: str | None = None
    ) -> None:
        """Notes an optimizer step; the gradients in it may be of several epochs. For `gate` see `Span`."""
        self.parameters[server].of(epoch).updates += 1
        self._computed(epoch, Span("WU", "parameters", server, -1, -1, *times, version=version, gate=gate))

    def predict(self, server: int, epoch: int, version: int, times: tuple[float, float]) -> None:
        """Notes that weights to come were predicted of a version, for an interval in this epoch."""
        self._computed(epoch, Span("predict", "parameters", server, -1, -1, *times, version=version))

    def finish(self, server: int, interval: int, epoch: int, times: tuple[float, float]) -> None:
        """Notes that a parameter server has made an interval's complete gradient."""
        self._computed(epoch, Span("finish", "parameters", server, interval, epoch, *times))

    def _computed(self, epoch: int, span: Span) -> None:
        self.parameters[span.server].of(epoch).busy_seconds += span.end - span.start
        self._tell(span)

    def _tell(self, span: Span) -> None:
        if self._trace is not None:
            self._trace(span.later(self._before) if self._before else span)
