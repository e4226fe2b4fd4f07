"""`dorylax calibrate`, with a recorded calibration: `tests/calibration/test_machine.py` runs a real one."""

from __future__ import annotations

import json
import os
import platform
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from support.calibrations import TINY, measured

from dorylax.calibration import machine, steps
from dorylax.calibration.steps import Sizes
from dorylax.cost import find_cluster
from dorylax.cost.measured import VERSION, Measured
from dorylax.graph.cache import cache_directory
from dorylax.store.folder_lock import locked


@pytest.fixture(autouse=True)
def recorded_calibration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DORYLAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(steps, "Sizes", lambda: TINY)
    monkeypatch.setattr(machine, "measure", recorded)
    monkeypatch.chdir(tmp_path)


def recorded(told: Callable[[int, int, str], None], given: Sizes) -> Measured:
    """Replaces `machine.measure`: checks its arguments, reports one step, and returns recorded numbers."""
    assert given is TINY
    told(0, 1, "memory")
    return measured()


def test_the_file_is_for_the_pipeline(dorylax, tmp_path: Path) -> None:
    code, out, err = dorylax("calibrate", "--out", "mine.yaml", "--price", "0.34")
    assert (code, err) == (0, "")
    assert re.search(r"│ gather +│ width 16, rows 0.000953674 MiB, threads 2 ", out)
    assert out.splitlines()[-1] == "written: mine.yaml, for pipeline.cluster=mine.yaml"
    cluster = find_cluster("mine.yaml")
    assert (cluster.name, cluster.graph_server.price) == ("mine", 0.34)
    assert not (tmp_path / "cache").exists()  # nor a lock in it
    virtual = ("--set", "pipeline.clock=virtual", "--set", "pipeline.cluster=mine.yaml")
    words = (
        "train",
        "--data",
        "communities",
        "--set",
        "data.size=tiny",
        *("--epochs", "1", "--no-save", "--json"),
        *virtual,
    )
    assert dorylax(*words).code == 0


def test_json_without_a_file(dorylax, tmp_path: Path) -> None:
    code, out, err = dorylax("calibrate", "--json", "--name", "box")
    assert (code, err) == (0, "")
    content = json.loads(out)
    assert (content["schema"], content["out"], content["doubts"], content["cluster"]["name"]) == (1, None, [], "box")
    assert content["cluster"]["measured"]["version"] == VERSION
    assert not list(tmp_path.glob("*"))
    assert dorylax("calibrate").out.splitlines()[-1].startswith("nothing was written: give --out FILE.yaml")


def test_doubts_are_warnings(dorylax, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "doubts", lambda _: ["the machine is busy"])
    code, out, err = dorylax("calibrate", "--json")
    assert (code, err) == (0, "warning: the machine is busy\n")
    assert json.loads(out)["doubts"] == ["the machine is busy"]


def test_a_folder_without_permission(dorylax, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir()
    access = os.access  # root may write everywhere
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "closed" and access(path, mode))
    code, _, err = dorylax("calibrate", "--out", "closed/mine.yaml")
    assert (code, err) == (2, "error: --out closed/mine.yaml: closed may not be written by you\n")


def test_a_file_is_replaced_when_all_is_measured(dorylax, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("old")
    with monkeypatch.context() as patch:

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(machine, "measure", interrupted)
        code, _, err = dorylax("calibrate", "--out", "mine.yaml", "--replace")
    assert (code, err.strip()) == (130, "interrupted")
    assert path.read_text() == "old"
    assert dorylax("calibrate", "--out", "mine.yaml", "--replace").code == 0
    assert find_cluster("mine.yaml").name == "mine"


def test_one_at_a_time_measures_a_machine(dorylax, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second process waits, names the first, and does not overwrite its file."""
    measuring = []
    monkeypatch.setattr(machine, "measure", lambda *_: measuring.append(1))
    begun, over = threading.Event(), threading.Event()

    def first() -> None:
        with locked(cache_directory() / "calibrate" / platform.node()):
            begun.set()
            over.wait(60)
            (tmp_path / "mine.yaml").write_text("first")

    other = threading.Thread(target=first)
    other.start()
    begun.wait(60)
    threading.Timer(0.3, over.set).start()
    code, _, err = dorylax("calibrate", "--out", "mine.yaml")
    other.join()
    assert code == 2
    waits, refused = err.splitlines()
    assert waits.startswith("this process, since ")
    assert waits.endswith(" is measuring this machine: waiting until it has ended")
    assert refused.startswith("error: --out mine.yaml exists")
    assert measuring == []
    assert (tmp_path / "mine.yaml").read_text() == "first"
