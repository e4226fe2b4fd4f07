"""Event files: what is in them, read back as TensorBoard does; resumed runs; runs that fail."""

from __future__ import annotations

import builtins
import multiprocessing
import os
import signal
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tensorboardX.crc32c import crc32c
from tensorboardX.proto.event_pb2 import Event, SessionLog

from dorylax.errors import InputError
from dorylax.experiments.executors.local import _serve
from dorylax.experiments.run import main
from dorylax.experiments.runner import RunOptions, directory
from dorylax.experiments.sweep_file import read
from dorylax.observers import tensorboard
from dorylax.observers.tensorboard import TensorBoard
from dorylax.runs.result import EpochRecord, Timings, TrainResult
from dorylax.store.run_directory import RunDirectoryError
from dorylax.terminal.failures import explain
from dorylax.trainer import Observer

_SWEEP = """\
base: {data.size: tiny, train.epochs: 3, train.checkpoint_every: 1}
grid: {model.name: [mlp]}
seeds: 2
"""


def _checked(data: bytes, checksum: bytes) -> bytes:
    crc = crc32c(data) & 0xFFFFFFFF
    assert struct.unpack("<I", checksum)[0] == (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
    return data


def _events(path: Path) -> Iterator[Any]:
    """The messages of a file: each has its length, and a checksum of it and of itself (the format TFRecord)."""
    data = path.read_bytes()
    while data:
        (length,) = struct.unpack("<Q", _checked(data[:8], data[8:12]))
        yield Event.FromString(_checked(data[12 : 12 + length], data[12 + length : 16 + length]))
        data = data[16 + length :]


def _scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Tag → steps and values, as TensorBoard shows them: what a later start has purged is left out."""
    found: dict[str, list[tuple[int, float]]] = {}
    for path in sorted(folder.iterdir()):
        assert "tfevents" in path.name
        events = list(_events(path))
        assert events[0].file_version == "brain.Event:2"
        for event in events:
            if event.session_log.status == SessionLog.START:
                found = {tag: [pair for pair in pairs if pair[0] < event.step] for tag, pairs in found.items()}
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return {tag: pairs for tag, pairs in found.items() if pairs}


def _record(epoch: int, dollars: float | None = None, *, evaluated: bool = True) -> EpochRecord:
    accuracies = (0.75, 0.5, 0.25) if evaluated else (None, None, None)
    return EpochRecord(epoch, 2.0 - epoch / 4, *accuracies, 0.125, dollars)


def _result(history: list[EpochRecord], first_epoch: int = 0) -> TrainResult:
    return TrainResult(history, {}, {}, history[0].epoch, "epochs", Timings(), first_epoch=first_epoch)


def _train(folder: Path, history: list[EpochRecord], first_epoch: int = 0, *, total: int | None = None) -> None:
    """A run, as the trainer tells of it; stopped before its end where it has more epochs in total."""
    with TensorBoard(folder) as board:
        board.started(total or len(history), first_epoch)
        for record in history[first_epoch:]:
            board.epoch(record)
        if total is None:
            board.finished(_result(history, first_epoch))


def _open_files(folder: Path) -> list[str]:
    links = Path("/proc/self/fd").iterdir()
    return [name for link in links if (name := os.path.realpath(link)).startswith(str(folder))]


def test_scalars_by_epoch_and_at_the_end(tmp_path: Path) -> None:
    assert isinstance(TensorBoard(tmp_path), Observer)
    _train(tmp_path / "a" / "b", [_record(0, 0.5), _record(1, 1.0, evaluated=False)])
    assert _scalars(tmp_path / "a" / "b") == {
        "loss": [(0, 2.0), (1, 1.75)],
        "accuracy/train": [(0, 0.75)],
        "accuracy/val": [(0, 0.5)],
        "accuracy/test": [(0, 0.25)],
        "seconds_per_epoch": [(0, 0.125), (1, 0.125)],
        "dollars": [(0, 0.5), (1, 1.0)],
        "final/val_accuracy": [(2, 0.5)],
        "final/test_accuracy": [(2, 0.25)],
    }


def test_no_dollars_and_no_accuracies_where_there_are_none(tmp_path: Path) -> None:
    _train(tmp_path, [_record(0, evaluated=False)])
    assert _scalars(tmp_path).keys() == {"loss", "seconds_per_epoch"}


def test_nothing_is_written_before_training(tmp_path: Path) -> None:
    with TensorBoard(tmp_path / "a") as board:
        board.epoch(_record(0))
    assert not (tmp_path / "a").exists()


def test_two_that_begin_at_once_in_one_folder_have_files_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensorboard.time, "time", lambda: 1e9)
    with TensorBoard(tmp_path) as one, TensorBoard(tmp_path) as other:
        for board in (one, other):
            board.started(2, 0)
        for epoch in range(2):
            one.epoch(_record(epoch))
            other.epoch(_record(epoch))
    first, second = (list(_events(path)) for path in sorted(tmp_path.iterdir()))
    assert [event.step for event in first] == [event.step for event in second] == [0, 0, 0, 1]


def test_resumed_after_it_was_killed(tmp_path: Path) -> None:
    history = [_record(epoch) for epoch in range(5)]
    _train(tmp_path, history[:4], total=5)  # the last checkpoint is of epoch 2
    _train(tmp_path, history, first_epoch=2)
    assert len(list(tmp_path.iterdir())) == 2
    found = _scalars(tmp_path)
    assert [step for step, _ in found["loss"]] == [0, 1, 2, 3, 4]
    assert [step for step, _ in found["final/test_accuracy"]] == [5]


def test_resumed_for_more_epochs_there_is_one_final_accuracy(tmp_path: Path) -> None:
    history = [_record(epoch) for epoch in range(4)]
    _train(tmp_path, history[:2])
    _train(tmp_path, history, first_epoch=2)
    _train(tmp_path, history, first_epoch=4)  # nothing to do
    found = _scalars(tmp_path)
    assert [step for step, _ in found["loss"]] == [0, 1, 2, 3]
    assert [step for step, _ in found["final/val_accuracy"]] == [4]


def test_started_from_the_beginning_again(tmp_path: Path) -> None:
    _train(tmp_path, [_record(0)], total=5)
    _train(tmp_path, [_record(0), _record(1)])
    assert [step for step, _ in _scalars(tmp_path)["loss"]] == [0, 1]


def test_closed_after_an_error_with_what_was_written(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path)
    board.started(5, 0)
    board.epoch(_record(0))
    assert len(_open_files(tmp_path)) == 1
    with pytest.raises(RuntimeError, match="mine"), board:
        raise RuntimeError("mine")
    assert _open_files(tmp_path) == []
    assert [step for step, _ in _scalars(tmp_path)["loss"]] == [0]
    board.close()


def test_closed_when_finished(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path)
    board.started(1, 0)
    board.started(1, 0)
    board.finished(_result([_record(0)]))
    assert _open_files(tmp_path) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board = TensorBoard(tmp_path)
    monkeypatch.setattr(builtins, "open", lambda _path, mode, _open=open: _open("/dev/full", mode))
    with pytest.raises(RunDirectoryError, match="No space left"), board:
        board.started(1, 0)
    with pytest.raises(RunDirectoryError, match="No space left") as caught:
        board.started(1, 0)
    assert caught.value.refused
    with pytest.raises(RuntimeError, match="mine"), board:
        raise RuntimeError("mine")
    board.close()
    (tmp_path / "file").touch()
    with pytest.raises(RunDirectoryError, match="file") as caught:
        TensorBoard(tmp_path / "file").started(1, 0)
    assert caught.value.refused


def test_what_to_do_where_the_library_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "tensorboardX"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=r'pip install "dorylax\[tensorboard\]"') as caught:
        TensorBoard(tmp_path)
    explained = explain(caught.value)
    assert explained.code == 2
    (tmp_path / "s.yaml").write_text(_SWEEP)
    assert main(["--sweep", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "out"), "--tensorboard"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.exhaustive)])
def test_each_run_of_a_sweep(tmp_path: Path, jobs: str) -> None:
    (tmp_path / "s.yaml").write_text(_SWEEP)
    words = ["--sweep", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "out"), "--jobs", jobs, "--no-report"]
    assert main([*words, "--tensorboard"]) == 0
    runs = list((tmp_path / "out" / "runs").iterdir())
    assert len(runs) == 2
    for run in runs:
        assert [step for step, _ in _scalars(run / "tensorboard")["loss"]] == [0, 1, 2]


def test_a_run_in_another_process(tmp_path: Path) -> None:
    """What such a process does, in this one; starting two takes most of a minute on a busy machine."""
    (run,) = read(_SWEEP.replace("seeds: 2", "seeds: 1"), "s.yaml", "s").runs
    here, there = multiprocessing.Pipe()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP)}  # it does not hear these
    try:
        with here, there:
            for message in (run, None):
                here.send(message)
            _serve(there, tmp_path, RunOptions(tensorboard=True))
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert [step for step, _ in _scalars(directory(tmp_path, run) / "tensorboard")["loss"]] == [0, 1, 2]


def test_none_without_the_option(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(_SWEEP.replace("seeds: 2", "seeds: 1"))
    assert main(["--sweep", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "out"), "--no-report"]) == 0
    assert not list((tmp_path / "out" / "runs").glob("*/tensorboard"))
