"""What a keeper of a local cluster that was killed has left: told from what is somebody else's."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.processes import until

from dorylax.ray_cluster import record as module
from dorylax.ray_cluster.record import KeptNode, Record, boot_id, clear_stale, record_folder, running
from dorylax.settings.errors import ConfigError

pytestmark = [pytest.mark.timeout(60), pytest.mark.skipif(sys.platform != "linux", reason="local clusters need Linux")]


@pytest.fixture
def session() -> Iterator[int]:
    """A session of a process and its child, whose own child is orphaned when it is killed."""
    script = "import subprocess, sys; subprocess.Popen(['sleep', '600']); print('up', flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout.readline() == b"up\n"
    yield process.pid
    subprocess.run(["pkill", "-KILL", "-s", str(process.pid)], check=False)
    process.communicate()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the record is."""
    monkeypatch.setenv("DORYLAX_CACHE", str(tmp_path / "cache"))
    record_folder().mkdir(parents=True)
    return record_folder()


def _record(session: int, folder: Path, *, boot: str | None = None, since: float | None = None) -> Record:
    temporary = folder / f"{module.TEMPORARY_PREFIX}x"
    temporary.mkdir()
    found = Record(session, boot_id() if boot is None else boot, since or time.time(), str(temporary))
    found.write(folder)
    return found


def test_it_is_what_was_written(folder: Path) -> None:
    assert Record.read(folder) is None
    record = Record(1, "b", 2.0, "t").with_nodes("127.0.0.1:1", [KeptNode("n", 3)])
    record.write(folder)
    assert Record.read(folder) == record
    (folder / Record.FILE).write_text("{")
    assert Record.read(folder) is None


def test_what_is_left_of_a_killed_keeper_is_ended_and_removed(folder: Path, session: int) -> None:
    record = _record(session, folder)
    assert record.kept
    subprocess.run(["kill", "-KILL", str(session)], check=True)
    until(lambda: not record.kept)
    assert module._left_of(session, record.since) != []
    assert clear_stale() is True
    assert module._left_of(session, record.since) == []
    assert list(folder.parent.rglob("*")) == [folder]
    assert clear_stale() is False


@pytest.mark.parametrize("reused", [False, True])
def test_processes_of_others_are_left_alone(folder: Path, session: int, *, reused: bool) -> None:
    """After the machine has started anew, and where the number is that of a younger process."""
    record = _record(session, folder, since=time.time() - 600) if reused else _record(session, folder, boot="other")
    assert not record.kept
    assert clear_stale() is True
    assert len(module._left_of(session, time.time())) == 2
    assert running() is None


def test_one_that_cannot_be_used_is_refused(folder: Path, tmp_path: Path) -> None:
    record = Record(1, boot_id(), time.time(), str(tmp_path))
    with pytest.raises(ConfigError, match="is only starting"):
        record.check()
    with pytest.raises(ConfigError, match=r"are gone from .*: start it anew"):
        record.with_nodes("127.0.0.1:1", []).check()
