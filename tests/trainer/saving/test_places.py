"""Which place a run has, from its directory alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dorylax.store.run_directory import RunDirectory
from dorylax.trainer.saving.places import Places, described

S3 = "s3://bucket/a/prefix"


def begun(path: Path, setting: str | None = S3) -> Places:
    """A run that has begun in a directory."""
    directory = RunDirectory(path)
    places = Places.of(directory, setting)
    directory.write_start({"train": {"checkpoints": setting}}, checkpoints=places.note())
    return places


def test_a_name_has_no_characters_that_an_address_or_a_shell_takes_for_others(tmp_path: Path) -> None:
    place = Places.of(RunDirectory(tmp_path / "my runs" / "ä?#%"), f"{S3}/").place
    assert place.startswith(f"{S3}/my-runs/--".replace("--", "-"))
    assert set(place.removeprefix("s3://")) <= set("abcdefghijklmnopqrstuvwxyz0123456789/-")


def test_a_path_that_is_relative_is_the_same_as_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Places.of(RunDirectory(Path("x/y")), S3) == Places.of(RunDirectory(tmp_path / "x/y"), S3)


def test_in_the_directory_nothing_is_noted(tmp_path: Path) -> None:
    places = begun(tmp_path / "run", None)
    assert (places.place, places.note()) == (str(tmp_path / "run" / "checkpoints"), None)
    assert "checkpoints" not in RunDirectory(tmp_path / "run").environment
    assert Places.of(RunDirectory(tmp_path / "run"), None).former == ()


def test_a_damaged_environment_is_made_up_for_where_the_directory_has_not_moved(tmp_path: Path) -> None:
    before = begun(tmp_path / "run")
    (tmp_path / "run" / "environment.json").write_text("{")
    after = Places.of(RunDirectory(tmp_path / "run"), None)
    assert before.place in after.former
    assert Places.of(RunDirectory(tmp_path / "run"), S3).noted == before.place


def test_a_copy_to_work_in_has_the_place_of_what_it_is_a_copy_of(tmp_path: Path) -> None:
    kept = tmp_path / "sweep" / "runs" / "key"
    before = begun(kept)
    shutil.copytree(kept, tmp_path / "scratch")
    for path in (tmp_path / "scratch", tmp_path / "new"):
        assert Places.of(RunDirectory(path), S3, kept).place == before.place


def test_whose_a_place_is_in_words(tmp_path: Path) -> None:
    owner = Places.of(RunDirectory(tmp_path / "run"), S3).owner()
    assert described(owner).startswith(f"the run in {tmp_path}/run on ")
    for damaged in (owner.replace(b"run", b"ran"), b"", b"[1]", b'"x"'):
        assert described(damaged) == "another run"
