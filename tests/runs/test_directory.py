from __future__ import annotations

import os

import pytest
import yaml

from dorylax.runs.directory import RunDirectory, RunDirectoryAccessError, RunDirectoryError

CONFIG = {"train": {"epochs": 3, "rate": 1e-5}, "model": {"sizes": (1, 2)}}


def test_create_and_open(tmp_path):
    made = RunDirectory.create(tmp_path / "a" / "run", CONFIG)
    opened = RunDirectory.open(tmp_path / "a" / "run")
    assert opened.config == {"train": {"epochs": 3, "rate": 1e-5}, "model": {"sizes": [1, 2]}}
    assert yaml.safe_load(made.config_path.read_text())["schema"] == 1
    assert opened.summary is None
    assert not opened.complete
    assert sorted(path.name for path in made.path.iterdir()) == ["config.yaml", "environment.json"]


def test_same_configuration_is_taken_up(tmp_path):
    RunDirectory.create(tmp_path, CONFIG)
    (tmp_path / "metrics.jsonl").write_text("kept")
    RunDirectory.create(tmp_path, CONFIG)
    assert (tmp_path / "metrics.jsonl").read_text() == "kept"


def test_other_configuration_is_refused(tmp_path):
    RunDirectory.create(tmp_path, CONFIG)
    other = {"train": {"epochs": 4, "rate": 1e-5}, "model": {"sizes": [1, 2]}}
    with pytest.raises(RunDirectoryError, match=r"train\.epochs: 3 there, 4 here"):
        RunDirectory.create(tmp_path, other)
    assert RunDirectory.open(tmp_path).config["train"]["epochs"] == 3
    RunDirectory.create(tmp_path, other, free={"train.epochs"})
    assert RunDirectory.open(tmp_path).config["train"]["epochs"] == 4


def test_foreign_places_are_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirectoryError, match="is a file"):
        RunDirectory.create(tmp_path / "file", CONFIG)
    with pytest.raises(RunDirectoryError, match="not empty and not a run"):
        RunDirectory.create(tmp_path, CONFIG)
    with pytest.raises(RunDirectoryError, match="not a run directory"):
        RunDirectory.open(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("stopped", "complete"), [("epochs", True), ("patience", True), ("signal", False), ("diverged", False)]
)
def test_summary(tmp_path, stopped, complete):
    run = RunDirectory.create(tmp_path, CONFIG)
    run.write_summary({"stopped": stopped, "test_accuracy": None})
    assert run.summary == {"stopped": stopped, "test_accuracy": None}
    assert run.complete is complete
    run.remove_summary()
    run.remove_summary()
    assert run.summary is None


def test_json_is_strict(tmp_path):
    run = RunDirectory.create(tmp_path, CONFIG)
    run.write_summary({"final_loss": 1.0})
    with pytest.raises(ValueError, match="JSON"):
        run.write_summary({"final_loss": float("inf")})
    assert run.summary == {"final_loss": 1.0}


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"schema": 2}'])
def test_unreadable_summary(tmp_path, content):
    run = RunDirectory.create(tmp_path, CONFIG)
    run.summary_path.write_text(content)
    with pytest.raises(RunDirectoryError, match=r"summary\.json"):
        _ = run.summary


def test_a_full_disk_is_the_machines_and_leaves_the_old_file(tmp_path, monkeypatch):
    run = RunDirectory.create(tmp_path, CONFIG)
    run.write_summary({"final_loss": 1.0})

    def full(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for write in (run.write_summary, RunDirectory(tmp_path).write_start):
        with pytest.raises(
            RunDirectoryAccessError, match=r"the run directory cannot be written: .*No space left"
        ) as caught:
            write({"final_loss": 2.0})
        assert not caught.value.user_error
    assert run.summary == {"final_loss": 1.0}


def test_leftovers_of_a_killed_process_do_not_matter(tmp_path):
    leftover = tmp_path / ".config.yaml.ab3f0129"
    leftover.write_text("schema")
    RunDirectory.create(tmp_path, CONFIG)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.yaml", "environment.json"]
    other = tmp_path / "foreign"
    other.mkdir()
    for name in (".config.yaml.ab3f0129", ".bashrc"):
        (other / name).write_text("")
    with pytest.raises(RunDirectoryError, match="not empty and not a run"):
        RunDirectory.create(other, CONFIG)
    assert len(list(other.iterdir())) == 2


def test_a_refusal_changes_nothing_and_is_the_users(tmp_path):
    RunDirectory.create(tmp_path, CONFIG)
    before = (tmp_path / "config.yaml").read_bytes()
    with pytest.raises(RunDirectoryError) as caught:
        RunDirectory.claim(tmp_path, {"train": {"epochs": 4}})
    assert caught.value.user_error
    assert (tmp_path / "config.yaml").read_bytes() == before


@pytest.mark.parametrize("content", [None, b"", b"{", b"\xff"])
def test_unreadable_environment(tmp_path, content):
    run = RunDirectory.create(tmp_path, CONFIG)
    assert run.environment["cpu_count"] == os.cpu_count()
    run.environment_path.unlink()
    if content is not None:
        run.environment_path.write_bytes(content)
    with pytest.raises(RunDirectoryError, match=r"environment\.json") as caught:
        _ = run.environment
    assert caught.value.user_error == (content is not None)


def test_a_configuration_that_is_no_text_is_an_error_of_ours(tmp_path):
    run = RunDirectory.create(tmp_path, CONFIG)
    run.config_path.write_bytes(b"\xff")
    with pytest.raises(RunDirectoryError, match=r"config\.yaml"):
        _ = run.config
