"""Counters of a run: tasks, messages, and rows read by their age."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, final

from dorylax.cost import Calls
from dorylax.serverless.controller import Call


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
                for lag, rows in more.items():
                    mine[lag] = mine.get(lag, 0) + rows
            else:
                setattr(self, field.name, mine + more)

    def to_dict(self) -> dict[str, int]:
        """Return a dict of all scalar counters."""
        names = [field.name for field in dataclasses.fields(self) if field.name not in ("calls", "rows_by_lag")]
        return {name: getattr(self, name) for name in (*names, "rows_read", "stale_rows")}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Restore the counters from a result of `dataclasses.asdict`."""
        for name, value in saved.items():
            setattr(self, name, Calls(**value) if name == "calls" else value)


@final
@dataclasses.dataclass(frozen=True)
class Loss:
    """Servers in other processes that were lost together, or during the recovery from a loss.

    Attributes:
        generation: Number of losses so far, this one included.
        servers: Servers of the lost processes: "graph server 1", say.
        causes: Reasons why these processes count as lost, each once.
        epoch: First epoch trained afterwards.
        repeats: Whether that epoch had begun before the loss.
        wasted_seconds: Time from the end of the previous epoch to the detection of the loss; 0 without repetition.
        recovery_seconds: Time from the detection until all servers were replaced.
    """

    generation: int
    servers: list[str]
    causes: list[str]
    epoch: int
    repeats: bool
    wasted_seconds: float
    recovery_seconds: float
