"""What a node must have for a sweep, without a cluster."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import sys
import tempfile
from pathlib import Path

import pytest

from dorylax.errors import RunError
from dorylax.experiments.executors.ray_worker import Events, Surroundings, pack, scratch_folder, unpack
from dorylax.store.folder_lock import LOCK
from dorylax.version import __version__


@pytest.fixture
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Surroundings:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    return Surroundings(__version__, str(tmp_path), (), {}, 3)


def test_the_folder_the_environment_and_the_threads_are_those_of_the_sweep(
    surroundings: Surroundings, tmp_path: Path
) -> None:
    os.environ["DORYLAX_DATA"] = "/theirs"
    (tmp_path / "mine.py").touch()
    home = tmp_path / "home"
    home.mkdir()
    (home / "mine.py").touch()
    given = {"JAX_ENABLE_X64": "1", "DORYLAX_DATA": str(tmp_path / "nowhere"), "DORYLAX_CACHE": str(home)}
    dataclasses.replace(surroundings, home=str(home), files=("mine.py",), environment=given).settle()
    assert Path.cwd() == home
    assert sys.path[-1] == str(home)
    assert (os.environ["NPROC"], os.environ["JAX_ENABLE_X64"]) == ("3", "1")
    # A folder that the node does not have is the node's to say.
    assert (os.environ["DORYLAX_DATA"], os.environ["DORYLAX_CACHE"]) == ("/theirs", str(home))


def test_a_node_without_the_folder_is_good_for_what_needs_no_files(surroundings: Surroundings, tmp_path: Path) -> None:
    dataclasses.replace(surroundings, home=str(tmp_path / "nowhere")).settle()
    assert Path.cwd() == tmp_path


def test_what_is_missing_is_said(surroundings: Surroundings, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=f"^node .* has no {tmp_path}/mine.npz, which the sweep names: put it there on"):
        dataclasses.replace(surroundings, files=("mine.npz",)).settle()
    with pytest.raises(
        RunError, match=f"^node .* has dorylax {__version__}, the sweep's process 0.0: install the same"
    ):
        dataclasses.replace(surroundings, version="0.0").settle()


def test_a_directory_comes_back_without_locks_and_unfinished_files(tmp_path: Path) -> None:
    (tmp_path / "from" / "deep").mkdir(parents=True)
    (tmp_path / "from" / "deep" / "file").write_bytes(b"content")
    (tmp_path / "from" / LOCK).touch()
    (tmp_path / "from" / ".file.dorylax-01234567").touch()
    unpack(pack(tmp_path / "from"), tmp_path / "to")
    assert sorted(path.name for path in (tmp_path / "to").rglob("*")) == ["deep", "file"]
    assert (tmp_path / "to" / "deep" / "file").read_bytes() == b"content"


def test_an_attempt_continues_from_the_last_snapshot_and_earlier_attempts_are_not_heard() -> None:
    async def check() -> None:
        events = Events()
        assert await events.begin("run", "node a") == (1, None)
        await events.say("run", 1, "saved", b"first")
        await events.say("run", 1, "epoch", 3)
        assert await events.begin("run", "node b") == (2, b"first")
        await events.say("run", 1, "saved", b"late")  # from a node that was taken for lost
        await events.say("run", 2, "finished", {})
        assert await events.begin("run", "node c") == (3, b"first")
        assert await events.take() == [
            ("run", "begins", (1, "node a")),
            ("run", "saved", (b"first",)),
            ("run", "epoch", (3,)),
            ("run", "begins", (2, "node b")),
            ("run", "finished", ({},)),
            ("run", "begins", (3, "node c")),
        ]

    asyncio.run(check())


def test_temporary_folders_are_apart_and_all_are_gone_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with scratch_folder() as first, scratch_folder() as second:
        (first / "file").touch()
        assert sorted(tmp_path.iterdir()) == sorted([first, second])
    assert list(tmp_path.iterdir()) == []
