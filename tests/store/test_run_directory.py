from __future__ import annotations

import json
import os

import pytest
import yaml
from support.run_directories import begun

from dorylax.errors import RunWarning
from dorylax.store.digest import sealed
from dorylax.store.run_directory import RunDirectory, RunDirectoryError, differences

CONFIG = {"train": {"epochs": 3, "rate": 1e-5}, "model": {"sizes": (1, 2)}}


def test_create_and_open(tmp_path):
    made = begun(tmp_path / "a" / "run", CONFIG)
    opened = RunDirectory.open(tmp_path / "a" / "run")
    assert opened.config == {"train": {"epochs": 3, "rate": 1e-5}, "model": {"sizes": [1, 2]}}
    assert yaml.safe_load(made.config_path.read_text())["schema"] == 1
    assert opened.summary is None
    assert not opened.complete
    assert sorted(path.name for path in made.path.iterdir()) == ["config.yaml", "environment.json"]


def test_same_configuration_is_taken_up(tmp_path):
    begun(tmp_path, CONFIG)
    (tmp_path / "metrics.jsonl").write_text("kept")
    begun(tmp_path, CONFIG)
    assert (tmp_path / "metrics.jsonl").read_text() == "kept"


def test_other_configuration_is_refused(tmp_path):
    begun(tmp_path, CONFIG)
    other = {"train": {"epochs": 4, "rate": 1e-5}, "model": {"sizes": [1, 2]}}
    with pytest.raises(RunDirectoryError, match=r"train\.epochs: 3 there, 4 here"):
        begun(tmp_path, other)
    assert RunDirectory.open(tmp_path).config["train"]["epochs"] == 3
    begun(tmp_path, other, free={"train.epochs"})
    assert RunDirectory.open(tmp_path).config["train"]["epochs"] == 4


def test_foreign_places_are_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirectoryError, match="is a file"):
        begun(tmp_path / "file", CONFIG)
    with pytest.raises(RunDirectoryError, match="not empty and not a run"):
        begun(tmp_path, CONFIG)
    with pytest.raises(RunDirectoryError, match="not a run directory"):
        RunDirectory.open(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("stopped", "complete"), [("epochs", True), ("patience", True), ("signal", False), ("diverged", False)]
)
def test_summary(tmp_path, stopped, complete):
    run = begun(tmp_path, CONFIG)
    run.write_summary({"stopped": stopped, "test_accuracy": None})
    assert run.summary == {"stopped": stopped, "test_accuracy": None}
    assert run.complete is complete
    run.remove_summary()
    run.remove_summary()
    assert run.summary is None


def test_a_summary_goes_before_a_configuration_that_ends_the_run_elsewhere(tmp_path):
    config = {"train": {"epochs": 2, "seed": 0}, "single": {"memory": 1}}
    run = RunDirectory(tmp_path / "run")
    run.remove_outdated_summary(config)  # there is nothing
    run.write_start(config)
    run.write_summary({"stopped": "epochs"})
    run.remove_outdated_summary(config | {"single": {"memory": 2}})
    assert run.complete
    longer = config | {"train": {"epochs": 3, "seed": 0}}
    run.remove_outdated_summary(longer)
    assert not run.complete
    run.write_summary({"stopped": "epochs"})
    run.config_path.write_text("{")
    run.remove_outdated_summary(config)
    assert not run.complete


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"schema": 2}', '{"schema": 1, "digest": ""}'])
def test_unreadable_summary(tmp_path, content):
    run = begun(tmp_path, CONFIG)
    run.summary_path.write_text(content)
    with pytest.raises(RunDirectoryError, match=r"summary\.json"):
        _ = run.summary


def test_a_full_disk_is_the_machines_and_leaves_the_old_file(tmp_path, monkeypatch):
    run = begun(tmp_path, CONFIG)
    run.write_summary({"final_loss": 1.0})

    def full(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for write in (run.write_summary, RunDirectory(tmp_path).write_start):
        with pytest.raises(RunDirectoryError, match=r"the run directory cannot be written: .*No space left") as caught:
            write({"final_loss": 2.0})
        assert caught.value.refused
        assert not caught.value.user_error
    assert run.summary == {"final_loss": 1.0}


def test_leftovers_of_a_killed_process_do_not_matter(tmp_path):
    leftover = tmp_path / ".config.yaml.dorylax-ab3f0129"
    leftover.write_text("schema")
    begun(tmp_path, CONFIG)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.yaml", "environment.json"]
    other = tmp_path / "foreign"
    other.mkdir()
    for name in (".config.yaml.dorylax-ab3f0129", ".bashrc"):
        (other / name).write_text("")
    with pytest.raises(RunDirectoryError, match="not empty and not a run"):
        begun(other, CONFIG)
    assert len(list(other.iterdir())) == 2


def test_a_refusal_changes_nothing_and_is_the_users(tmp_path):
    begun(tmp_path, CONFIG)
    before = (tmp_path / "config.yaml").read_bytes()
    with pytest.raises(RunDirectoryError) as caught:
        RunDirectory.claim(tmp_path, {"train": {"epochs": 4}})
    assert caught.value.user_error
    assert (tmp_path / "config.yaml").read_bytes() == before


@pytest.mark.parametrize("content", [None, b"", b"{", b"\xff"])
def test_unreadable_environment(tmp_path, content):
    run = RunDirectory(tmp_path)
    run.write_start(CONFIG, {"cpu_count": 3})
    assert run.environment["cpu_count"] == 3
    run.environment_path.unlink()
    if content is not None:
        run.environment_path.write_bytes(content)
    with pytest.raises(RunDirectoryError, match=r"environment\.json") as caught:
        _ = run.environment
    assert not caught.value.user_error
    assert (caught.value.refused, caught.value.damaged) == (content is None, content is not None)


def test_a_configuration_that_is_no_text_is_an_error_of_ours(tmp_path):
    run = begun(tmp_path, CONFIG)
    run.config_path.write_bytes(b"\xff")
    with pytest.raises(RunDirectoryError, match=r"config\.yaml"):
        _ = run.config


SUMMARY = {"stopped": "epochs", "final_loss": 0.12345, "passes": ["größer", None], "timings": {"wall": 1e-7}}


def flips(path):
    """Damages a file, one bit at a time, and puts it right at the end."""
    content = path.read_bytes()
    for bit in range(0, 8 * len(content), 3):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        yield bit
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["summary", "environment", "config"])
def test_a_flipped_bit_is_damage_or_changes_no_value(tmp_path, name):
    """Where it is in the name of the digest, the file is taken for one of before there were any, with one field more."""
    run = begun(tmp_path, CONFIG)
    run.write_summary(SUMMARY)
    whole = getattr(run, name)
    path = getattr(run, f"{name}_path")
    refused, messages = 0, set()
    for bit in flips(path):
        try:
            found = getattr(run, name)
        except RunDirectoryError as error:
            messages.add(str(error))
            refused += error.damaged
        else:
            assert {key: found[key] for key in whole} == whole, bit
    assert 3 * refused > (3 if name == "config" else 6) * path.stat().st_size
    assert all(message.startswith(str(path)) and "\n" not in message for message in messages)
    assert getattr(run, name) == whole


def test_files_of_before_there_were_digests_are_read(tmp_path):
    run = begun(tmp_path, CONFIG)
    run.config_path.write_text(yaml.safe_dump({"schema": 1, "train": {"epochs": 3}}))
    run.summary_path.write_text(json.dumps({"schema": 1, **SUMMARY}))
    run.environment_path.write_text(json.dumps({"schema": 1, "python": "3.11"}))
    assert (run.config, run.summary, run.environment) == ({"train": {"epochs": 3}}, SUMMARY, {"python": "3.11"})


def test_a_newer_schema_is_no_damage(tmp_path):
    run = begun(tmp_path, CONFIG)
    run.summary_path.write_text(json.dumps(sealed({"schema": 2})))
    with pytest.raises(
        RunDirectoryError, match="has schema 2, this version of dorylax reads up to 1: update"
    ) as caught:
        _ = run.summary
    assert not caught.value.damaged


def test_a_summary_says_how_to_get_it_again(tmp_path):
    run = begun(tmp_path, CONFIG)
    run.write_summary(SUMMARY)
    run.summary_path.write_text(run.summary_path.read_text().replace("0.12345", "0.12346"))
    with pytest.raises(RunDirectoryError) as caught:
        _ = run.complete
    assert caught.value.damaged
    assert str(caught.value) == (
        f"{run.summary_path} is damaged (its content does not have the digest that was written with it): go on with the "
        "run, which writes it anew from its checkpoint (the same command with --resume, or the same sweep again)"
    )


def test_an_edited_configuration_says_what_to_do(tmp_path):
    run = begun(tmp_path, CONFIG)
    before = run.config_path.read_text()
    edited = before.replace("epochs: 3", "epochs: 30")
    run.config_path.write_text(edited)
    for read in (lambda: run.config, lambda: RunDirectory.claim(tmp_path, CONFIG, resume=True)):
        with pytest.raises(
            RunDirectoryError, match=r"undo the edit, .*--resume.*give a copy of it by --config"
        ) as caught:
            read()
        assert caught.value.damaged
        assert "\n" not in str(caught.value)
    # With a checkpoint, which says whose run it is, a run goes on.
    run.checkpoints_path.mkdir()
    with pytest.raises(RunDirectoryError) as caught:
        RunDirectory.claim(tmp_path, CONFIG, resume=True)
    assert caught.value.damaged
    (run.checkpoints_path / "epoch-00000001").mkdir()
    (run.checkpoints_path / "epoch-00000001" / "manifest.json").touch()
    with pytest.raises(RunDirectoryError) as caught:
        RunDirectory.claim(tmp_path, CONFIG)
    assert caught.value.damaged
    run.config_path.write_text("a stranger's: [")
    with pytest.raises(RunDirectoryError) as caught:
        RunDirectory.claim(tmp_path, CONFIG, resume=True)
    assert caught.value.damaged
    run.config_path.write_text(edited)
    with pytest.warns(RunWarning, match="is not as it was written, and is written anew") as warned:
        RunDirectory.claim(tmp_path, CONFIG, resume=True)
    assert len(warned) == 1
    assert run.config_path.read_text() == edited
    run.write_start(CONFIG)
    assert run.config_path.read_text() == before


def test_notes_in_a_configuration_are_no_edit(tmp_path):
    run = begun(tmp_path, CONFIG)
    whole = run.config
    run.config_path.write_text(run.config_path.read_text().replace("\n", "  # a note\n") + "\n# another\n")
    assert run.config == whole


def test_a_section_that_is_missing_differs_key_by_key():
    old, new = {"train": {"epochs": 3}}, {"train": {"epochs": 3}, "pipeline": {"servers": 2, "staleness": None}}
    assert differences(old, new) == {"pipeline.servers": (None, 2)}
    assert differences(new, old) == {"pipeline.servers": (2, None)}
