"""The progress bar: what it shows on a terminal, and silence elsewhere."""

from __future__ import annotations

import dataclasses
import errno
import io
import re

import pytest

from dorylax.observers.progress import ProgressBar, bar, data_size, describe_summary, duration
from dorylax.runs.result import EpochRecord, Timings, TrainResult


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _record(epoch: int, val: float | None = 0.5) -> EpochRecord:
    return EpochRecord(epoch, 1.25, 0.75 if val is None else None, val, None, 0.004)


def _result(history: list[EpochRecord], best: int | None) -> TrainResult:
    return TrainResult(history, {}, {}, best, "epochs", Timings())


def _plain(stream: io.StringIO) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()])
def test_a_bar_of_other_work(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO) -> None:
    monkeypatch.setattr("sys.stderr", stream)
    with bar("generating") as progress:
        progress(1, 2, "edges")
    shown = _plain(stream)
    assert ("generating" in shown and "edges" in shown) == stream.isatty()
    assert bool(shown) == stream.isatty()


def test_a_bar_estimates_each_step_by_itself_and_keeps_the_time_left_at_80_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream, now = Terminal(), iter([0.0, 100.0, 110.0])
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stderr", stream)
    with bar("import") as progress:
        monkeypatch.setattr("dorylax.observers.progress.time.perf_counter", lambda: next(now))
        for done in (0.0, 1.0, 0.0, 0.5):
            progress(done, 1, "numbering vertices, 123,456,789,012 edges and whatever else")
        monkeypatch.undo()
    assert "━" in _plain(stream)
    assert "10 s left" in _plain(stream)


def test_silent_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    # Rich would take this for a terminal.
    monkeypatch.setenv("FORCE_COLOR", "1")
    stream = io.StringIO()
    with ProgressBar("gcn", stream) as bar:
        bar.started(2, 0)
        bar.epoch(_record(0))
        bar.finished(_result([_record(0)], 0))
    assert stream.getvalue() == ""


def test_no_stream_and_a_closed_one_are_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    for stream in (None, closed):
        monkeypatch.setattr("sys.stderr", stream)
        with ProgressBar("gcn", always=True) as bar:
            bar.started(2, 0)
            bar.epoch(_record(0))
            bar.finished(_result([_record(0)], 0))


def test_shows_epoch_loss_accuracy_speed_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    times = iter([100.0, 102.0])
    stream = Terminal()
    bar = ProgressBar("gcn on cora, seed 0", stream, clock=lambda: next(times))
    bar.started(10, 0)
    bar.epoch(_record(0))
    bar.epoch(_record(1))
    bar.close()
    # Two seconds for the one epoch after the first; eight are left.
    line = "epoch 2/10  loss 1.2500  accuracy 0.5000  4 ms/epoch  16 s left"
    assert line in _plain(stream)
    assert "gcn on cora, seed 0" in _plain(stream)


@pytest.mark.parametrize("columns", [200, 100, 80, 60])
@pytest.mark.parametrize("label", ["gcn on communities, async S=1 on 4 servers, virtual time, seed 0", "gcn"])
def test_a_narrow_terminal_keeps_bar_and_time_left(monkeypatch: pytest.MonkeyPatch, columns: int, label: str) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    times = iter([100.0, 180.0])
    stream = Terminal()
    bar = ProgressBar(label, stream, clock=lambda: next(times))
    bar.started(10, 0)
    bar.epoch(_record(0))
    bar.epoch(dataclasses.replace(_record(1), dollars=0.0123))
    bar.close()
    line = [line for line in re.split(r"[\r\n]", _plain(stream)) if "left" in line][-1].rstrip()
    assert len(line) <= columns
    assert line.endswith(" 10 min 40 s left")
    assert len(re.findall("[━╸╺]", line)) == 20
    assert line.startswith("gcn")
    assert "  epoch" in line or " epoch" in line


def test_training_accuracy_stands_in_for_an_empty_validation_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    stream = Terminal()
    with ProgressBar("gcn", stream, clock=lambda: 0.0) as bar:
        bar.started(10, 0)
        bar.epoch(_record(0, val=None))
    assert "accuracy 0.7500" in _plain(stream)


def test_leaves_the_result_behind() -> None:
    stream = Terminal()
    with ProgressBar("gcn", stream, clock=lambda: 0.0) as bar:
        bar.started(1, 0)
        bar.epoch(_record(0))
        bar.finished(_result([_record(0)], 0))
    last = _plain(stream).strip().splitlines()[-1]
    assert last.endswith("gcn: validation accuracy 50.0 % (epoch 0), loss 1.2500, 1 epochs, 4 ms/epoch")


def test_the_terminal_is_restored_after_an_error() -> None:
    stream = Terminal()
    bar = ProgressBar("gcn", stream, clock=lambda: 0.0)
    bar.started(5, 0)
    with pytest.raises(RuntimeError), bar:
        raise RuntimeError
    assert stream.getvalue().rindex("\x1b[?25h") > stream.getvalue().rindex("\x1b[?25l")  # cursor shown again


def test_a_terminal_that_is_closed_ends_nothing() -> None:
    class Closed(Terminal):
        def write(self, text: str, /) -> int:
            raise OSError(errno.EIO, "Input/output error")

        def flush(self) -> None:
            raise OSError(errno.EIO, "Input/output error")

    with ProgressBar("gcn", Closed()) as bar:
        bar.started(2, 0)
        bar.epoch(_record(0))
        bar.finished(_result([_record(0)], 0))


def test_describe() -> None:
    assert describe_summary(_result([], None).summary()) == "0 epochs"
    fields = {"metric": "micro_f1", "test_accuracy": 0.5, "epochs": 3, "stopped": "patience"}
    assert describe_summary(fields) == "test micro-F1 50.0 %, 3 epochs, stopped early"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0032, "3.2 ms"),
        (0.5, "500 ms"),
        (1.239, "1.24 s"),
        (59.9, "59.9 s"),
        (125.0, "2 min 05 s"),
        (11520.0, "3 h 12 min"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0 B"), (12.4, "12 B"), (999, "999 B"), (1200, "1.2 kB"), (3.4e6, "3.4 MB"), (1.024e12, "1,024.0 GB")],
)
def test_data_size(num_bytes: float, text: str) -> None:
    assert data_size(num_bytes) == text


def test_lines_where_they_are_asked_for() -> None:
    times = iter([0.0, 1.0, 1.0, 11.0, 11.0, 11.5, 11.5])
    stream = io.StringIO()
    bar = ProgressBar("gcn", stream, clock=lambda: next(times), always=True)
    bar.started(10, 0)
    for epoch in range(2):
        bar.epoch(_record(epoch))
    bar.finished(_result([_record(0)], 0))
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("gcn: epoch 1/10  loss 1.2500")
    assert lines[1].startswith("gcn: validation accuracy 50.0 %")


class Display:
    """IPython's, as far as a progress line uses it."""

    def __init__(self) -> None:
        self.shown: list[dict[str, str]] = []

    def display(self, bundle: dict[str, str], *, raw: bool, display_id: bool) -> Display:
        assert raw
        assert display_id
        self.shown.append(bundle)
        return self

    def update(self, bundle: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.shown.append(bundle)


def test_a_notebook_has_one_output_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    display = Display()
    monkeypatch.setattr("dorylax.observers.progress.notebook", lambda: display)
    now = [0.0]
    bar = ProgressBar("gcn", clock=lambda: now[0])
    bar.started(4, 0)
    for epoch in range(3):  # of which the second comes too soon after the first
        now[0] += (1.0, 0.1, 0.3)[epoch]
        bar.epoch(_record(epoch))
    texts = [bundle["text/plain"] for bundle in display.shown]
    assert texts[:2] == ["", f"gcn {'╌' * 20} compiling …"]
    assert [text.split("  ")[0] for text in texts[2:]] == [
        f"gcn {'━' * 5}{'╌' * 15} epoch 1/4",
        f"gcn {'━' * 15}{'╌' * 5} epoch 3/4",
    ]
    bar.close()  # broken off: how far it came is left
    assert "epoch 3/4" in display.shown[-1]["text/plain"]
    bar.started(1, 0)
    bar.finished(_result([_record(0)], 0))
    assert display.shown[-1]["text/plain"].startswith("gcn: validation accuracy 50.0 %")
