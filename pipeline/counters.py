"""How much a run has done: tasks, messages, rows read and how old they were."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, final

from dorylax.cost import Calls
from dorylax.pipeline.buffers import Reads
from dorylax.serverless.controller import Call


@final
@dataclasses.dataclass
class Counters:
    """Sums over all servers.

    Attributes:
        graph_tasks, tensor_tasks: how many ran.
        messages, message_bytes: between graph servers.
        retries: calls of tensor tasks that failed.
        rows_read: different rows that intervals have read through edges, in epochs after the first.
        stale_rows: how many of them were of an earlier epoch than the reader's.
        oldest_lag: the largest number of epochs that a row was behind its reader.
        relaunches: tensor tasks that were called once more beside a call that was late.
        late: answers that came when there was one already.
        calls: of functions, as they are billed.
    """

    graph_tasks: int = 0
    tensor_tasks: int = 0
    messages: int = 0
    message_bytes: int = 0
    retries: int = 0
    rows_read: int = 0
    stale_rows: int = 0
    oldest_lag: int = 0
    relaunches: int = 0
    late: int = 0
    calls: Calls = dataclasses.field(default_factory=Calls)

    def read(self, epoch: int, found: Reads) -> None:
        """Counts rows that an interval in this epoch has read."""
        if epoch <= 0 or found.oldest is None:
            return
        self.rows_read += found.rows
        self.stale_rows += found.stale
        self.oldest_lag = max(self.oldest_lag, epoch - found.oldest)

    def call(self, call: Call) -> None:
        """Counts a call of a function."""
        self.calls.add(call.end - call.start)
        self.retries += call.outcome in ("failed", "deadline")
        self.late += call.outcome == "late"

    def to_dict(self) -> dict[str, int]:
        """All but the calls."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "calls"}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Goes on counting from what `dataclasses.asdict` gave."""
        for name, value in saved.items():
            setattr(self, name, Calls(**value) if name == "calls" else value)
