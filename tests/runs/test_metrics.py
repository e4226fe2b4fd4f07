from __future__ import annotations

import json

import pytest

from dorylax.runs import metrics
from dorylax.runs.directory import RunDirectoryError
from dorylax.runs.result import EpochRecord

RECORDS = [EpochRecord(i, 1 / (i + 3), 0.5, None, 1 / 3, 0.001) for i in range(4)]


def written(path, records=RECORDS, history=()):
    writer = metrics.MetricsWriter(path, history)
    writer.started(10, len(history))
    for record in records:
        writer.epoch(record)
    return path


def test_lines(tmp_path):
    path = written(tmp_path / "metrics.jsonl")
    first = json.loads(path.read_text().splitlines()[0])
    assert first == {
        "schema": 1,
        "epoch": 0,
        "loss": 1 / 3,
        "train_accuracy": 0.5,
        "val_accuracy": None,
        "test_accuracy": 1 / 3,
        "seconds": 0.001,
    }
    assert metrics.read(path) == RECORDS


def test_each_line_is_out_at_once(tmp_path):
    writer = metrics.MetricsWriter(tmp_path / "metrics.jsonl")
    writer.started(10, 0)
    writer.epoch(RECORDS[0])
    assert metrics.read(tmp_path / "metrics.jsonl") == RECORDS[:1]


def test_resumed_file_holds_the_history(tmp_path):
    path = written(tmp_path / "metrics.jsonl")
    written(path, RECORDS[2:3], history=RECORDS[:2])
    assert metrics.read(path) == RECORDS[:3]


def test_torn_last_line_is_left_out(tmp_path):
    path = written(tmp_path / "metrics.jsonl")
    path.write_text(path.read_text()[:-20])
    assert metrics.read(path) == RECORDS[:3]


@pytest.mark.parametrize(
    "line", ["{", "[1]", '{"schema": 2}', '{"schema": 1, "epoch": 0}', '{"epoch": 0}', "\ufffd", ""]
)
def test_damaged_line_is_named(tmp_path, line):
    path = written(tmp_path / "metrics.jsonl", RECORDS[:1])
    path.write_text(f"{path.read_text()}{line}\n")
    with pytest.raises(RunDirectoryError, match="line 2"):
        metrics.read(path)


def test_nan_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        written(tmp_path / "metrics.jsonl", [EpochRecord(0, float("nan"), None, None, None, 0.0)])


def test_missing_file(tmp_path):
    with pytest.raises(RunDirectoryError, match="cannot be read"):
        metrics.read(tmp_path / "none")
