"""What each server does in each epoch: plain sums, added to where things happen, taken out once per epoch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar, final

from dorylax.pipeline.buffers import Reads
from dorylax.runs.servers import GraphServerMetrics, ParameterServerMetrics

C = TypeVar("C")


@final
@dataclasses.dataclass
class GraphCounts:
    """Of a graph server in an epoch; `GraphServerMetrics` says what they mean.

    Attributes:
        graph_queue, tensor_calls: sums over all tasks, of what has the mean there.
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
        """A graph task has come, and so many wait for a thread now."""
        self.graph_queue += waiting
        self.graph_queue_max = max(self.graph_queue_max, waiting)

    def tensor_queued(self, under_way: int) -> None:
        """A tensor task has come, and so many are not answered now."""
        self.tensor_calls += under_way
        self.tensor_calls_max = max(self.tensor_calls_max, under_way)

    def metrics(self, epoch: int, server: int, threads: int) -> GraphServerMetrics:
        """As they are written down."""
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
    """Of a parameter server in an epoch; `ParameterServerMetrics` says what they mean."""

    pulls: int = 0
    pulls_held: int = 0
    pushes: int = 0
    updates: int = 0
    busy_seconds: float = 0.0
    bytes_received: int = 0
    bytes_sent: int = 0
    stashes_max: int = 0

    def metrics(self, epoch: int, server: int) -> ParameterServerMetrics:
        """As they are written down."""
        return ParameterServerMetrics(epoch, server, **dataclasses.asdict(self))


@final
class EpochCounts(Generic[C]):
    """Of one server, by epoch: what is done for an epoch counts there, also while the server works for others.

    What becomes known of an epoch that was taken out (an answer that comes too late) counts for the next one.

    Args:
        make: counts of which nothing was counted.
    """

    def __init__(self, make: Callable[[], C]) -> None:
        self._make, self._by_epoch, self._first = make, dict[int, C](), 0

    def of(self, epoch: int) -> C:
        """To be added to. What is done before training, in epoch -1, is in no epoch."""
        if 0 <= epoch < self._first:
            epoch = self._first
        found = self._by_epoch.get(epoch)
        if found is None:
            found = self._by_epoch[epoch] = self._make()
        return found

    def take(self, epoch: int) -> C:
        """Those of an epoch that all have finished; the next is the first from now on."""
        found = self.of(epoch)
        self._first = epoch + 1
        self._by_epoch = {one: counts for one, counts in self._by_epoch.items() if one > epoch}
        return found

    def restore(self, epoch: int, saved: Mapping[str, Any]) -> None:
        """Goes on before an epoch, of which an earlier process had counted this: a dict of the fields."""
        self._first, self._by_epoch = epoch, {epoch: self._make()}
        for name, value in saved.items():
            setattr(self._by_epoch[epoch], name, value)


def lag_of(epoch: int, found: Reads) -> dict[str, int]:
    """How many rows were how many epochs behind their reader in this epoch; none in the first, and before."""
    if epoch <= 0:
        return {}
    return {str(epoch - found.oldest - newer): rows for newer, rows in enumerate(found.rows) if rows}


def add_up(total: dict[str, int], more: Mapping[str, int]) -> None:
    """Adds numbers by name."""
    for name, number in more.items():
        total[name] = total.get(name, 0) + number
