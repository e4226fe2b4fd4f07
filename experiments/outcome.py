"""What has become of a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, final

from dorylax.experiments.sweep import Run, Sweep


@final
@dataclasses.dataclass(frozen=True)
class RunOutcome:
    """What became of one run.

    Attributes:
        run: the run.
        status: "done" (has come to its own end), "failed", or "open" (not run, or stopped by a signal).
        summary: the content of its summary.json; empty unless done.
        error: the last line of its traceback, which names the user's own line where it is to blame, or what is wrong with
            its directory; None unless failed.
        environment: the content of its environment.json; empty unless done.
    """

    run: Run
    status: Literal["done", "failed", "open"]
    summary: dict[str, Any] = dataclasses.field(default_factory=dict)
    error: str | None = None
    environment: dict[str, Any] = dataclasses.field(default_factory=dict)


def of_part(part: Sweep, outcomes: Mapping[str, RunOutcome]) -> list[RunOutcome]:
    """What has become of the runs of a part of a sweep, as the part calls them.

    Args:
        part: of `Sweep.parts`.
        outcomes: of the whole, by key.
    """
    return [dataclasses.replace(outcomes[run.key], run=run) for run in part.runs]
