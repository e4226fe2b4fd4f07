"""The outcome of a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, final

from dorylax.experiments.sweep import Run, Sweep


@final
@dataclasses.dataclass(frozen=True)
class RunOutcome:
    """The outcome of one run.

    Attributes:
        run: The run.
        status: "done" (it came to its own end), "failed", or "open" (not run, or stopped by a signal).
        summary: Content of its summary.json; empty unless done.
        error: Last line of its traceback, which names the user's own line if that is the cause, or the damage of its
            directory; None unless failed.
        environment: Content of its environment.json; empty unless done.
    """

    run: Run
    status: Literal["done", "failed", "open"]
    summary: dict[str, Any] = dataclasses.field(default_factory=dict)
    error: str | None = None
    environment: dict[str, Any] = dataclasses.field(default_factory=dict)


def of_part(part: Sweep, outcomes: Mapping[str, RunOutcome]) -> list[RunOutcome]:
    """The outcomes of a part of a sweep, with the part's own runs; `outcomes` are those of the whole by key."""
    return [dataclasses.replace(outcomes[run.key], run=run) for run in part.runs]
