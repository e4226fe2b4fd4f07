"""Counters of each server and epoch: plain sums that are collected once per epoch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar, final

from dorylax.pipeline.buffers import Reads
from dorylax.store.servers import GraphServerMetrics, ParameterServerMetrics

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
