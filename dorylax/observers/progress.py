"""Progress of a training run in one line: epoch, loss, accuracy, seconds per epoch and the time left.

An observer of the trainer (`dorylax.observers.base`), for terminals and notebooks. On other outputs it writes only on
request, so that logs and pipes stay clean; the command line prints results.
"""

from __future__ import annotations

import contextlib
import io
import math
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Protocol, cast, final, runtime_checkable

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task
from rich.table import Column
from rich.text import Text

from dorylax.runs.metric import METRICS, score_in
from dorylax.terminal.session import notebook

if TYPE_CHECKING:
    from dorylax.runs.result import EpochRecord, TrainResult

# Number of epochs for the median "s/epoch": enough to be steady, few enough to follow a change.
_WINDOW = 20
_WIDTH = 20  # of a bar, in letters
_SECONDS = {"notebook": 0.2, "log": 10.0}
"""Minimum seconds between two updates, each a message to the browser or a line of the log."""
_REASONS = {
    "target": "stopped at the target accuracy",
    "patience": "stopped early",
    "signal": "stopped by a signal",
    "diverged": "diverged",
}


@runtime_checkable
class Stream(Protocol):
    """Required methods of a text stream, including those of `io.StringIO`, which is no `TextIO`."""

    def write(self, text: str, /) -> int:
        """Write text."""

    def flush(self) -> None:
        """Flush buffered text."""

    def isatty(self) -> bool:
        """Whether the stream is a terminal."""


@final
class Lasting:
    """A stream that may disappear (closed terminal, pipe without reader) without ending the training run.

    Args:
        stream: Stream that receives text while it can be written; None: text is dropped, as without a standard error.
    """

    def __init__(self, stream: Stream | None) -> None:
        self._stream = io.StringIO() if stream is None else stream

    def write(self, text: str, /) -> int:
        """See `Stream`."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """See `Stream`."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()

    def isatty(self) -> bool:
        """See `Stream`."""
        with contextlib.suppress(OSError, ValueError):
            return self._stream.isatty()
        return False


@final
class ProgressBar:
    """Observer that updates one line of a terminal or a notebook, and replaces it with the result at the end.

    Use it as a context manager, so that the terminal is restored when the run ends by an exception.

    Args:
        label: Description of the run, for instance `gcn on cora, seed 0`.
        stream: Output stream; None: standard error, or the output of a notebook's cell.
        clock: Returns seconds from any origin, for the time left.
        always: Whether to write a line every few seconds if the output is neither a terminal nor a notebook.
    """

    def __init__(
        self,
        label: str,
        stream: Stream | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
        always: bool = False,
    ) -> None:
        self._label = label
        self._display = notebook() if stream is None else None
        self._stream = Lasting(sys.stderr if stream is None else stream)
        self._clock = clock
        self._always = always
        self._seconds: deque[float] = deque(maxlen=_WINDOW)
        self._shows = False
        self._bars: Progress | None = None  # of a terminal
        self._cell: Any = None  # output of a notebook, which stores only its last state
        self._text, self._written = "", -math.inf  # last line without a terminal, and the time of the last one written
        self._total = 0
        self._judged = ""
        # Clock and epoch at the end of the first epoch seen here; the time before it includes compilation.
        self._mark: tuple[float, int] | None = None

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def started(self, total_epochs: int, first_epoch: int) -> None:
        """Show the line, on a terminal, in a notebook, or with `always`."""
        self._total, self._written = total_epochs, -math.inf
        if self._display is not None:
            self._cell = self._display.display({"text/plain": ""}, raw=True, display_id=True)
        elif (bars := terminal_bars(self._stream)) is not None:
            self._bars, self._task = bars, bars.add_task(self._label, total=total_epochs)
            bars.start()
        elif self._always:
            self._written = self._clock()
        else:
            return
        self._shows = True
        self._show(first_epoch, "compiling …")

    def epoch(self, record: EpochRecord) -> None:
        """Update the line."""
        if not self._shows:
            return
        done = record.epoch + 1
        now = self._clock()
        self._seconds.append(record.seconds)
        if record.evaluated or record.validated:
            self._judged = _judged(record)
        parts = [f"epoch {done}/{self._total}", f"loss {record.loss:.4f}"]
        if self._judged:
            parts.append(self._judged)
        parts.append(f"{duration(statistics.median(self._seconds))}/epoch")
        if record.dollars is not None:
            parts.append(dollars(record.dollars))
        left = ""
        if self._mark is None:
            self._mark = (now, done)
        elif self._total > done:
            start, first = self._mark
            left = f"{duration((now - start) / (done - first) * (self._total - done))} left"
        self._show(done, "  ".join(parts), left)

    def finished(self, result: TrainResult) -> None:
        """Replace the line with the result."""
        self.leave(result.summary())

    def leave(self, summary: Mapping[str, Any]) -> None:
        """Replace the line with a result, given as in summary.json."""
        self._end(f"{self._label}: {describe_summary(summary)}")

    def close(self) -> None:
        """Remove the line and restore the terminal; safe to repeat."""
        self._end(None)

    def _show(self, completed: int, state: str, left: str = "") -> None:
        """Show the progress and the time left; without a terminal, at most every few seconds."""
        if self._bars is not None:
            self._bars.update(self._task, completed=completed, state=state, left=left)
            return
        words = f"{state}  {left}" if left else state
        if self._cell is None:
            self._text = f"{self._label}: {words}"
        else:
            full = _WIDTH * completed // max(1, self._total)
            self._text = f"{self._label} {'━' * full}{'╌' * (_WIDTH - full)} {words}"
        if self._clock() - self._written >= _SECONDS["log" if self._cell is None else "notebook"]:
            self._written = self._clock()
            self._write(self._text)

    def _write(self, line: str) -> None:
        if self._cell is None:
            print(line, file=self._stream, flush=True)
        else:
            self._cell.update({"text/plain": line}, raw=True)

    def _end(self, last: str | None) -> None:
        if not self._shows:
            return
        self._shows = False
        if self._bars is not None:
            self._bars.stop()
        if last is None and self._cell is not None:
            last = self._text  # after an interrupted run, the last progress stays visible
        if last is not None:
            self._write(last)


@final
class _Words(ProgressColumn):
    """Text column of a task. On a narrow terminal, columns with `cut` end with an ellipsis; the others keep their width."""

    def __init__(self, words: Callable[[Task], str], *, cut: bool) -> None:
        super().__init__(Column(no_wrap=not cut))
        self._words = words

    def render(self, task: Task) -> Text:
        """See `ProgressColumn`."""
        return Text(self._words(task), no_wrap=True, overflow="ellipsis")


def terminal_bars(stream: Stream) -> Progress | None:
    """Transient progress lines of a terminal: description, bar, fields `state` and `left`; None without a terminal."""
    if not stream.isatty():
        return None
    console = Console(file=cast("IO[str]", stream), force_terminal=True)
    columns = (
        _Words(lambda task: task.description, cut=True),
        BarColumn(bar_width=_WIDTH, table_column=Column(no_wrap=True)),
        _Words(lambda task: str(task.fields.get("state", "")), cut=True),
        _Words(lambda task: f" {task.fields.get('left', '')}", cut=False),
    )
    return Progress(*columns, console=console, transient=True, refresh_per_second=5)


@contextlib.contextmanager
def bar(label: str) -> Iterator[Callable[[int | float, int | float, str], None]]:
    """A bar on standard error, where that is a terminal, for work other than training.

    Args:
        label: Name of the work.

    Yields:
        A function to call with the amount done, the whole amount, and a description of the current step.
    """
    bars = terminal_bars(Lasting(sys.stderr))
    task = None if bars is None else bars.add_task(label, total=None)
    moment = before = last = whole = -1.0  # start of the current step, amount then, last amount, whole amount

    def progress(done: int | float, total: int | float, state: str) -> None:
        nonlocal moment, before, last, whole
        if bars is None or task is None:
            return
        if total != whole or done < last:
            moment, before = time.perf_counter(), done
        last, whole, left = done, total, ""
        if before < done < total:
            left = f"{duration((time.perf_counter() - moment) / (done - before) * (total - done))} left"
        bars.update(task, completed=done, total=total, state=state, left=left)

    with contextlib.nullcontext() if bars is None else bars:
        yield progress


def _judged(record: EpochRecord) -> str:
    """Name and value of the metric that judges an evaluated epoch."""
    value = record.score("val")
    shown = record.score("train") if value is None else value
    where = ("evaluated " if value is None else "validation ") if record.judge == "loss" else ""
    return f"{where}{METRICS[record.judge].title} {shown:.4f}"


def describe_summary(fields: Mapping[str, Any]) -> str:
    """A result in one line: `test accuracy 81.5 %, validation accuracy 79.2 % (epoch 61), loss 0.5210, 200 epochs, …`.

    Args:
        fields: `test_accuracy`, `final_loss` and so on as in a run's summary.json; missing fields are skipped.
    """
    kind = METRICS.get(fields.get("metric", ""), METRICS["accuracy"])
    parts = []
    for mask in ("test", "val"):
        if (value := score_in(fields, mask)) is not None:
            parts.append(f"{'validation' if mask == 'val' else mask} {kind.title} {kind.shown(value)}")
    if parts and fields.get("best_epoch") is not None:
        parts[-1] += f" (epoch {fields['best_epoch']})"
    if fields.get("final_loss") is not None:
        training = "training " if fields.get("metric") == "loss" else ""
        parts.append(f"{training}loss {fields['final_loss']:.4f}")
    parts.append(f"{fields.get('epochs', 0)} epochs")
    if fields.get("seconds_per_epoch") is not None:
        parts.append(f"{duration(fields['seconds_per_epoch'])}/epoch")
    if fields.get("stopped") in _REASONS:
        parts.append(_REASONS[fields["stopped"]])
    return ", ".join(parts)


def dollars(amount: float) -> str:
    """Format US dollars: `$1.24`, and small amounts to two digits: `$0.0031`."""
    if not amount:
        return "$0"
    return f"${amount:.2f}" if amount >= 0.1 else f"${amount:.2g}" if amount >= 1e-4 else f"${amount:.1e}"


def data_size(num_bytes: int | float) -> str:
    """Format bytes: `640 B`, `1.2 kB`, `230.4 MB`, `1,024.0 GB`."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if num_bytes >= unit:
            return f"{num_bytes / unit:,.1f} {name}"
    return f"{num_bytes:.0f} B"


def duration(seconds: float) -> str:
    """Format seconds: `3.2 ms`, `1.24 s`, `2 min 05 s`, `3 h 12 min`."""
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
