"""Recorder of a run's counters, server metrics and timeline.

Training never reads its data.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar, final

from dorylax.cost import Calls
from dorylax.pipeline.interval_pass import IntervalPass
from dorylax.pipeline.stamps import Reads
from dorylax.pipeline.timeline import Span
from dorylax.serverless.controller import Call
from dorylax.store.servers import GraphServerMetrics, ParameterServerMetrics


@final
@dataclasses.dataclass
class Counters:
    """Sums over all servers.

    Attributes:
        graph_tasks: Number of graph tasks.
        tensor_tasks: Number of tensor tasks.
        messages: Number of messages between graph servers.
        message_bytes: Bytes of these messages.
        retries: Number of failed calls of tensor tasks.
        rows_by_lag: Number of distinct rows read through edges, in epochs after the first, by lag in epochs behind the
            reader: "0" for rows of the reader's epoch, "-1" for rows of the next epoch.
        relaunches: Number of hedged calls of tensor tasks, started in parallel to a late call; without throttled calls.
        late: Number of redundant responses, received after another response.
        throttled: Number of calls that were rejected because of too many concurrent calls, and repeated.
        pulls_held: Number of pulls that returned the newest weights and required exact rows, because the stability gate was
            closed.
        calls: Billed calls of functions.
    """

    graph_tasks: int = 0
    tensor_tasks: int = 0
    messages: int = 0
    message_bytes: int = 0
    retries: int = 0
    rows_by_lag: dict[str, int] = dataclasses.field(default_factory=dict)
    relaunches: int = 0
    late: int = 0
    throttled: int = 0
    pulls_held: int = 0
    calls: Calls = dataclasses.field(default_factory=Calls)

    @property
    def rows_read(self) -> int:
        """Number of rows read."""
        return sum(self.rows_by_lag.values())

    @property
    def stale_rows(self) -> int:
        """Number of rows read that were from an earlier epoch than the reader."""
        return sum(rows for lag, rows in self.rows_by_lag.items() if int(lag) > 0)

    def call(self, call: Call) -> None:
        """Count a call of a function."""
        if call.outcome == "throttled":  # AWS bills only started calls
            self.throttled += 1
            return
        self.calls.add(call.end - call.start)
        self.retries += call.outcome in ("failed", "deadline")
        self.late += call.outcome == "late"

    def add(self, other: Counters) -> None:
        """Add the counts of another object."""
        for field in dataclasses.fields(self):
            mine, more = getattr(self, field.name), getattr(other, field.name)
            if field.name == "calls":
                self.calls = Calls(
                    *(a + b for a, b in zip(dataclasses.astuple(mine), dataclasses.astuple(more), strict=True))
                )
            elif field.name == "rows_by_lag":
                add_up(mine, more)
            else:
                setattr(self, field.name, mine + more)

    def to_dict(self) -> dict[str, int]:
        """Return a dict of all scalar counters."""
        names = [field.name for field in dataclasses.fields(self) if field.name not in ("calls", "rows_by_lag")]
        return {name: getattr(self, name) for name in (*names, "rows_read", "stale_rows")}

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> Counters:
        """Return the counters of a result of `dataclasses.asdict`."""
        found = cls()
        for name, value in saved.items():
            setattr(found, name, Calls(**value) if name == "calls" else value)
        return found


C = TypeVar("C")


@final
@dataclasses.dataclass
class GraphCounts:
    """Counters of a graph server in an epoch; `GraphServerMetrics` describes the fields.

    Attributes:
        graph_queue: Sum over all graph tasks; the metrics contain the mean.
        tensor_calls: Sum over all tensor tasks; the metrics contain the mean.
    """

    graph_tasks: int = 0
    graph_seconds: float = 0.0
    graph_queue: int = 0
    graph_queue_max: int = 0
    tensor_tasks: int = 0
    tensor_seconds: float = 0.0
    tensor_calls: int = 0
    tensor_calls_max: int = 0
    gate_seconds: float = 0.0
    rows_seconds: float = 0.0
    weights_seconds: float = 0.0
    messages: int = 0
    message_bytes: int = 0
    rows_by_lag: dict[str, int] = dataclasses.field(default_factory=dict)
    calls: dict[str, int] = dataclasses.field(default_factory=dict)

    def graph_queued(self, waiting: int) -> None:
        """Record the queue length, in tasks waiting for a thread, at the arrival of a graph task."""
        self.graph_queue += waiting
        self.graph_queue_max = max(self.graph_queue_max, waiting)

    def tensor_queued(self, under_way: int) -> None:
        """Record the number of unanswered tensor tasks at the arrival of a tensor task."""
        self.tensor_calls += under_way
        self.tensor_calls_max = max(self.tensor_calls_max, under_way)

    def metrics(self, epoch: int, server: int, threads: int) -> GraphServerMetrics:
        """Return the metrics of the epoch for the log."""
        sums = dataclasses.asdict(self)
        queue, calls = sums.pop("graph_queue"), sums.pop("tensor_calls")
        lags, outcomes = sums.pop("rows_by_lag"), sums.pop("calls")
        return GraphServerMetrics(
            epoch,
            server,
            threads,
            graph_queue_mean=queue / max(1, self.graph_tasks),
            tensor_calls_mean=calls / max(1, self.tensor_tasks),
            rows_by_lag={lag: lags[lag] for lag in sorted(lags, key=int)},
            calls={outcome: outcomes[outcome] for outcome in sorted(outcomes)},
            **sums,
        )


@final
@dataclasses.dataclass
class ParameterCounts:
    """Counters of a parameter server in an epoch; `ParameterServerMetrics` describes the fields."""

    pulls: int = 0
    pulls_held: int = 0
    pushes: int = 0
    updates: int = 0
    busy_seconds: float = 0.0
    bytes_received: int = 0
    bytes_sent: int = 0
    stashes_max: int = 0

    def metrics(self, epoch: int, server: int) -> ParameterServerMetrics:
        """Return the metrics of the epoch for the log."""
        return ParameterServerMetrics(epoch, server, **dataclasses.asdict(self))


@final
class EpochCounts(Generic[C]):
    """Counters of one server by epoch. Work counts for the epoch that needs it, even if the server has several in progress.

    Late events of an epoch that was already collected (such as a late response) count for the next epoch.

    Args:
        make: Creates zero counters.
    """

    def __init__(self, make: Callable[[], C]) -> None:
        self._make, self._by_epoch, self._first = make, dict[int, C](), 0

    def of(self, epoch: int) -> C:
        """Return the counters of an epoch, for additions. Work before training has separate counters, in epoch -1."""
        if 0 <= epoch < self._first:
            epoch = self._first
        found = self._by_epoch.get(epoch)
        if found is None:
            found = self._by_epoch[epoch] = self._make()
        return found

    def take(self, epoch: int) -> C:
        """Return and drop the counters of an epoch that all intervals have finished."""
        found = self.of(epoch)
        self._first = epoch + 1
        self._by_epoch = {one: counts for one, counts in self._by_epoch.items() if one > epoch}
        return found

    def restore(self, epoch: int, saved: Mapping[str, Any]) -> None:
        """Resume before an epoch with the counts of an earlier process, a dict of the fields."""
        self._first, self._by_epoch = epoch, {epoch: self._make()}
        for name, value in saved.items():
            setattr(self._by_epoch[epoch], name, value)


def lag_of(epoch: int, found: Reads) -> dict[str, int]:
    """Return the number of rows read by lag in epochs behind the reader; empty in the first epoch and before it."""
    if epoch <= 0:
        return {}
    return {str(epoch - found.oldest - newer): rows for newer, rows in enumerate(found.rows) if rows}


def add_up(total: dict[str, int], more: Mapping[str, int]) -> None:
    """Add each number to the total of the same name."""
    for name, number in more.items():
        total[name] = total.get(name, 0) + number


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
        self.counters = Counters.of(record["counters"])
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
