"""Progress of a sweep in a terminal: a line for the sweep with the time left, and one for each running run."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

from rich.progress import Progress, TaskID

from dorylax.experiments.measures import COMPARED, MEASURES
from dorylax.experiments.sweep import Run, RunOutcome
from dorylax.observers.progress import Lasting, Stream, describe_summary, dollars, duration, terminal_bars
from dorylax.runs.metric import METRICS

if TYPE_CHECKING:
    from dorylax.runs.result import EpochRecord


@final
class SweepProgress:
    """A watcher that shows progress, and leaves a line for each run; outside terminals only the latter.

    Args:
        runs: All runs of the sweep.
        todo: Those that are not done.
        jobs: Runs at a time.
        seconds: Estimated seconds of runs by key; other runs take the median.
        stream: Output; by default standard error.
        clock: Seconds from any origin.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        todo: Sequence[Run],
        jobs: int,
        seconds: Mapping[str, float],
        stream: Stream | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._stream = Lasting(sys.stderr if stream is None else stream)
        self._clock, self._jobs, self._known = clock, jobs, dict(seconds)
        self._names = {run.key: f"[{place}/{len(runs)}] {run.label}" for place, run in enumerate(runs, start=1)}
        self._left = dict.fromkeys((run.key for run in todo), 1.0)  # shares of runs
        self._ended, self._failed = len(runs) - len(todo), 0
        self._begun: dict[str, float] = {}
        self._taken: list[float] = []
        self._progress = terminal_bars(self._stream) or Progress(disable=True)
        self._lines: dict[str, TaskID] = {}
        self._totals: dict[str, int] = {}
        self._whole = self._progress.add_task("sweep", total=len(runs))
        self._progress.start()
        self._refresh()

    def __enter__(self) -> SweepProgress:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._progress.disable:  # Rich 14 would print an empty line
            self._progress.stop()

    def begins(self, run: Run) -> None:
        """See `Watcher`."""
        self._begun[run.key] = self._clock()
        self._lines[run.key] = self._progress.add_task(f"  {run.label}", total=None, state="compiling …")
        self._refresh()

    def started(self, run: Run, total_epochs: int, first_epoch: int) -> None:
        """See `Watcher`."""
        self._totals[run.key] = total_epochs
        self._progress.update(self._lines[run.key], total=total_epochs, completed=first_epoch)

    def epoch(self, run: Run, record: EpochRecord) -> None:
        """See `Watcher`."""
        total = self._totals[run.key]
        self._left[run.key] = 1 - (record.epoch + 1) / total
        parts = [f"epoch {record.epoch + 1}/{total}"]
        if run.simulation is None:
            parts.append(f"loss {record.loss:.4f}")
        if (score := record.score("val")) is not None:
            parts.append(f"{METRICS[record.judge].title} {score:.4f}")
        if record.dollars is not None:
            parts.append(dollars(record.dollars))
        self._progress.update(self._lines[run.key], completed=record.epoch + 1, state="  ".join(parts))
        self._refresh()

    def again(self, run: Run, why: str) -> None:
        """See `Watcher`."""
        self._left[run.key] = 1.0
        self._print(f"{self._names[run.key]}: {why}: it is run again")

    def finished(self, run: Run, summary: Mapping[str, Any]) -> None:
        """See `Watcher`; the outcome has it."""

    def ends(self, outcome: RunOutcome) -> None:
        """See `Watcher`."""
        key = outcome.run.key
        if outcome.status == "open":
            return
        self._left[key] = 0.0
        self._ended += 1
        if outcome.status == "done":
            self._taken.append(self._clock() - self._begun.get(key, self._clock()))
        else:
            self._failed += 1
        if key in self._lines:
            self._progress.remove_task(self._lines.pop(key))
        self._print(f"{self._names[key]}: {_described(outcome)}")
        self._refresh()

    def _print(self, line: str) -> None:
        if self._progress.disable:
            print(line, file=self._stream, flush=True)
        else:
            self._progress.console.print(line, markup=False, highlight=False)

    def seconds_left(self) -> float | None:
        """Estimated seconds until the end; None while nothing is known."""
        typical = sorted(self._taken or self._known.values())
        if not typical:
            return None
        median = typical[len(typical) // 2]
        work = [left * self._known.get(key, median) for key, left in self._left.items() if left]
        return sum(work) / max(1, min(self._jobs, len(work)))

    def _refresh(self) -> None:
        seconds = self.seconds_left() if self._ended < len(self._names) else None
        state = f"{self._ended}/{len(self._names)} runs" + (f"  {self._failed} failed" if self._failed else "")
        left = "" if seconds is None else f"about {duration(seconds)} left"
        self._progress.update(self._whole, completed=self._ended, state=state, left=left)


def _described(outcome: RunOutcome) -> str:
    run, summary = outcome.run, outcome.summary
    if outcome.status == "failed":
        return f"failed: {outcome.error}"
    if run.simulation is None:
        text = describe_summary(summary)
    else:
        known = [name for name in COMPARED if summary[name] is not None]
        text = ", ".join(f"{MEASURES[name].title} {MEASURES[name].shown(summary[name])}" for name in known)
    return text + " (simulated time)" * run.virtual
