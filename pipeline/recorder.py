"""Recorder of a run's counters, server metrics and timeline.

Training never reads its data.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, final

from dorylax.pipeline.buffers import Reads
from dorylax.pipeline.counters import Counters
from dorylax.pipeline.interval_pass import IntervalPass
from dorylax.pipeline.server_counts import EpochCounts, GraphCounts, ParameterCounts, add_up, lag_of
from dorylax.pipeline.timeline import Span
from dorylax.serverless.controller import Call

Trace = Callable[[Span], None]
"""Records completed tasks."""


@final
class Recorder:
    """Counts the work of hosts and reports the span of every task. Hosts in one process may share a recorder.

    Args:
        labels: Labels of the program's tasks, by task index.
        trace: Called with every span, roughly in order of their ends; None to count only.

    Attributes:
        counters: Counters of the run.
        graph: Counters of each graph server in this process, by epoch.
        parameters: Counters of each parameter server in this process, by epoch.
    """

    def __init__(self, labels: Mapping[int, str], trace: Trace | None) -> None:
        self.counters = Counters()
        self.graph = defaultdict[int, EpochCounts[GraphCounts]](lambda: EpochCounts(GraphCounts))
        self.parameters = defaultdict[int, EpochCounts[ParameterCounts]](lambda: EpochCounts(ParameterCounts))
        self._labels, self._trace = labels, trace
        self._before = 0.0

    def go_on(self, record: Mapping[str, Any], epoch: int, trace: Trace | None, seconds: float) -> None:
        """Resume from the counts of an earlier process, which has traced the steps before training.

        Args:
            record: Record of `Saved`.
            epoch: Next epoch.
            trace: Called with every span from now on; None to count only.
            seconds: Seconds of the run when the clock was at 0, an offset for the times of spans.
        """
        self.counters.restore(record["counters"])
        self._trace, self._before = trace, seconds
        of_servers = record.get("servers", {})  # absent in checkpoints of earlier versions
        for books, kind in ((self.graph, "graph"), (self.parameters, "parameter")):
            for server, saved in enumerate(of_servers.get(kind, ())):
                books[server].restore(epoch, saved)

    # Graph servers.

    def graph_task(
        self, label: str, server: int, current: IntervalPass, *, times: tuple[float, float], task: int
    ) -> None:
        """Record a task that a graph server has run for an interval."""
        self.counters.graph_tasks += 1
        counts = self.graph[server].of(current.epoch)
        counts.graph_tasks += 1
        counts.graph_seconds += times[1] - times[0]
        self._tell(Span(label, "graph", server, current.number, current.epoch, *times, task))

    def tensor_task(
        self, label: str, server: int, current: IntervalPass, *, times: tuple[float, float], task: int
    ) -> None:
        """Record a task that a worker has run for an interval."""
        self.counters.tensor_tasks += 1
        counts = self.graph[server].of(current.epoch)
        counts.tensor_tasks += 1
        counts.tensor_seconds += times[1] - times[0]
        self._tell(Span(label, "tensor", server, current.number, current.epoch, *times, task))

    def message(
        self, label: str, server: int, current: IntervalPass, *, times: tuple[float, float], num_bytes: int
    ) -> None:
        """Record a message of an interval to another graph server."""
        counts = self.graph[server].of(current.epoch)
        for total in (self.counters, counts):
            total.messages += 1
            total.message_bytes += num_bytes
        self._tell(Span(label, "network", server, current.number, current.epoch, *times))

    def read(self, server: int, current: IntervalPass, found: Reads) -> None:
        """Record the rows that an interval has read."""
        if lags := lag_of(current.epoch, found):
            add_up(self.counters.rows_by_lag, lags)
            add_up(self.graph[server].of(current.epoch).rows_by_lag, lags)

    def calls(self, server: int) -> Callable[[Call], None]:
        """Return a callback that records the function calls of one server. Every call is billed, whatever its outcome."""

        def record(call: Call) -> None:
            key = call.key
            self.counters.call(call)
            add_up(self.graph[server].of(key.epoch).calls, {call.outcome: 1})
            if call.outcome != "answered":
                name = f"{self._labels[key.stage]} ({call.outcome})"
                self._tell(Span(name, "tensor", server, key.interval, key.epoch, call.start, call.end, key.stage))

        return record

    # Parameter servers.

    def pull(self, server: int, epoch: int, *, held: bool, num_bytes: int, stashes: int) -> None:
        """Record a pull of weights by an interval in this epoch, and the current number of stashes."""
        self.counters.pulls_held += held
        counts = self.parameters[server].of(epoch)
        counts.pulls += 1
        counts.pulls_held += held
        counts.bytes_sent += num_bytes
        counts.stashes_max = max(counts.stashes_max, stashes)

    def push(self, server: int, epoch: int, num_bytes: int) -> None:
        """Record a received part of a gradient."""
        counts = self.parameters[server].of(epoch)
        counts.pushes += 1
        counts.bytes_received += num_bytes

    def passed_on(self, server: int, epoch: int, num_bytes: int) -> None:
        """Record a gradient or updates that a parameter server has sent to another."""
        self.parameters[server].of(epoch).bytes_sent += num_bytes

    def update(
        self, server: int, epoch: int, version: int, times: tuple[float, float], gate: str | None = None
    ) -> None:
        """Record an optimizer step. Its gradients may be of several epochs. For `gate` see `Span`."""
        self.parameters[server].of(epoch).updates += 1
        self._computed(epoch, Span("WU", "parameters", server, -1, -1, *times, version=version, gate=gate))

    def predict(self, server: int, epoch: int, version: int, times: tuple[float, float]) -> None:
        """Record a prediction of future weights from a version, for an interval in this epoch."""
        self._computed(epoch, Span("predict", "parameters", server, -1, -1, *times, version=version))

    def finish(self, server: int, interval: int, epoch: int, times: tuple[float, float]) -> None:
        """Record that a parameter server has completed an interval's gradient."""
        self._computed(epoch, Span("finish", "parameters", server, interval, epoch, *times))

    def _computed(self, epoch: int, span: Span) -> None:
        self.parameters[span.server].of(epoch).busy_seconds += span.end - span.start
        self._tell(span)

    def _tell(self, span: Span) -> None:
        if self._trace is not None:
            self._trace(span.later(self._before) if self._before else span)
