"""What a node must have for a sweep, without a cluster."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dorylax.experiments.executors import ray_worker
from dorylax.experiments.executors.ray_worker import NodeError, NodeProcess, Surroundings
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
    with pytest.raises(NodeError, match=f"^node .* has no {tmp_path}/mine.npz, which the sweep names: put it there on"):
        dataclasses.replace(surroundings, files=("mine.npz",)).settle()
    with pytest.raises(
        NodeError, match=f"^node .* has dorylax {__version__}, the sweep's process 0.0: install the same"
    ):
        dataclasses.replace(surroundings, version="0.0").settle()


def test_a_process_is_told_from_a_later_one_of_its_number() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
    try:
        this = NodeProcess.this("00")
        started = ray_worker._stat(child.pid)[0]
        other = this._replace(number=child.pid, started=started + 1)
        assert other.cpu_seconds() is None
        other.kill()
        assert child.poll() is None
        same = other._replace(started=started)
        os.kill(child.pid, signal.SIGSTOP)
        used = same.cpu_seconds()
        assert used is not None
        assert used == same.cpu_seconds()
        same.kill()
        assert child.wait() == -signal.SIGKILL
        assert same.cpu_seconds() is None
        same.kill()  # gone
    finally:
        child.kill()
        child.wait()
    used = this.cpu_seconds()
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    assert (this.cpu_seconds() or 0.0) > used
