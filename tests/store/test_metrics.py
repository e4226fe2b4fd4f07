from __future__ import annotations

import json

import pytest
from support.run_directories import begun

from dorylax.runs.result import EpochRecord, Timings, TrainResult
from dorylax.store import lines, metrics
from dorylax.store.digest import sealed
from dorylax.store.run_directory import RunDirectory, RunDirectoryError

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
        "schema": 4,
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


def test_the_lines_are_on_disk_when_the_run_ends(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(lines, "sync_file", synced.append)
    path = written(tmp_path / "metrics.jsonl")
    assert synced == []
    writer, result = metrics.MetricsWriter(path), TrainResult([], {}, {}, None, "epochs", Timings())
    writer.finished(result)
    assert synced == [path]
    monkeypatch.undo()
    path.unlink()
    with pytest.raises(RunDirectoryError, match=r"metrics\.jsonl cannot be written: .*No such file") as caught:
        writer.finished(result)
    assert caught.value.refused


def test_resumed_file_holds_the_history(tmp_path):
    path = written(tmp_path / "metrics.jsonl")
    written(path, RECORDS[2:3], history=RECORDS[:2])
    assert metrics.read(path) == RECORDS[:3]


def test_torn_last_line_is_left_out(tmp_path):
    path = written(tmp_path / "metrics.jsonl")
    path.write_text(path.read_text()[:-20])
    assert metrics.read(path) == RECORDS[:3]


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[1]",
        '{"schema": 3}',
        '{"schema": 4}',
        '{"schema": true}',
        '{"schema": "4"}',
        '{"schema": 0}',
        '{"schema": 1, "epoch": 0}',
        '{"epoch": 0}',
        "\ufffd",
        "",
    ],
)
def test_damaged_line_is_named(tmp_path, line):
    path = written(tmp_path / "metrics.jsonl", RECORDS[:1])
    path.write_text(f"{path.read_text()}{line}\n")
    with pytest.raises(RunDirectoryError, match=r"metrics\.jsonl is damaged \(line 2: .*go on with the run") as caught:
        metrics.read(path)
    assert caught.value.damaged


def test_a_flipped_bit_is_damage_or_changes_nothing(tmp_path):
    """Of a run that has ended: its summary has the SHA-256."""
    path = written(tmp_path / "metrics.jsonl")
    RunDirectory(tmp_path).write_summary({"epochs": 4})
    content = path.read_bytes()
    bits = range(0, 8 * len(content), 5)
    for bit in bits:
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(RunDirectoryError, match=r"does not have the SHA-256 in summary\.json") as caught:
            metrics.read(path)
        assert caught.value.damaged
    path.write_bytes(content)
    RunDirectory(tmp_path).summary_path.write_text("damaged")
    assert metrics.read(path) == RECORDS  # the reader of the summary reports it


@pytest.mark.parametrize("schema", [1, 3])
def test_lines_of_earlier_versions_are_read(tmp_path, schema):
    path, fields = tmp_path / "metrics.jsonl", [{"schema": schema, **record.to_dict()} for record in RECORDS]
    path.write_text("".join(json.dumps(one if schema == 1 else sealed(one)) + "\n" for one in fields))
    assert metrics.read(path) == RECORDS
    if schema == 3:
        path.write_text(path.read_text().replace('"train_accuracy": 0.5', '"train_accuracy": 0.6', 1))
        with pytest.raises(RunDirectoryError, match="line 1: its content does not have the digest") as caught:
            metrics.read(path)
        assert caught.value.damaged


def test_a_newer_schema_is_no_damage(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(json.dumps({"schema": 5, "other": 1}) + "\n")
    with pytest.raises(RunDirectoryError, match=r"line 1, has schema 5, this version .* up to 4: update") as caught:
        metrics.read(path)
    assert not caught.value.damaged


@pytest.mark.parametrize("lost", [0, 2])
def test_a_lost_line_is_damage(tmp_path, lost):
    path = written(tmp_path / "metrics.jsonl")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:lost] + lines[lost + 1 :]))
    with pytest.raises(RunDirectoryError, match=f"line {lost + 1}: it is of epoch {lost + 1}, not {lost}") as caught:
        metrics.read(path)
    assert caught.value.damaged


def test_a_run_that_has_ended_has_all_its_lines(tmp_path):
    run = begun(tmp_path, {})
    run.write_summary({"epochs": 4})  # without a SHA-256 of the lines, as of earlier versions
    path = written(run.metrics_path)
    assert metrics.of_run(run) == RECORDS
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:3]))
    with pytest.raises(RunDirectoryError, match="3 of 4 epochs are there") as caught:
        metrics.of_run(run)
    assert caught.value.damaged


def test_nan_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        written(tmp_path / "metrics.jsonl", [EpochRecord(0, float("nan"), None, None, None, 0.0)])


def test_missing_file(tmp_path):
    with pytest.raises(RunDirectoryError, match="cannot be read"):
        metrics.read(tmp_path / "none")
