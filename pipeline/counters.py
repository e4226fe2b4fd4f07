"""How much a run has done: tasks, messages, rows read and how old they were."""

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
        graph_tasks, tensor_tasks: how many ran.
        messages, message_bytes: between graph servers.
        retries: calls of tensor tasks that failed.
        rows_by_lag: different rows that intervals have read through edges, in epochs after the first, by how many epochs
            they were behind their reader: "0" for rows of its own epoch, "-1" for such of the next.
        relaunches: calls of tensor tasks that were begun beside one that was late, without those that were throttled.
        late: answers that came when there was one already.
        throttled: calls that were refused because there were too many at a time, and were made again.
        pulls_held: pulls that gave the newest weights and demanded exact rows, because the stability gate was closed.
        calls: of functions, as they are billed.
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
        """All rows that were read."""
        return sum(self.rows_by_lag.values())

    @property
    def stale_rows(self) -> int:
        """How many of them were of an earlier epoch than the reader's."""
        return sum(rows for lag, rows in self.rows_by_lag.items() if int(lag) > 0)

    def call(self, call: Call) -> None:
        """Counts a call of a function."""
        if call.outcome == "throttled":  # AWS bills what it begins
            self.throttled += 1
            return
        self.calls.add(call.end - call.start)
        self.retries += call.outcome in ("failed", "deadline")
        self.late += call.outcome == "late"

    def add(self, other: Counters) -> None:
        """Adds what another has counted."""
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
        """All single numbers."""
        names = [field.name for field in dataclasses.fields(self) if field.name not in ("calls", "rows_by_lag")]
        return {name: getattr(self, name) for name in (*names, "rows_read", "stale_rows")}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Goes on counting from what `dataclasses.asdict` gave."""
        for name, value in saved.items():
            setattr(self, name, Calls(**value) if name == "calls" else value)
