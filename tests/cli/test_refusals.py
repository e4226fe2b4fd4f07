"""Commands that are refused in one line, before anything runs or is written.

`refusals.txt` has in turn a command and its message. They name files of the folder that `folder` makes.
The end of a message is not compared after "…": it lists data sets that other tests add, or sizes of this machine.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from cli.conftest import SCENARIO

from dorylax.calibration import machine
from dorylax.cli import main
from dorylax.graph.datasets import load
from dorylax.simulation import search

_LINES = (Path(__file__).parent / "refusals.txt").read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file of each kind. Not to be changed."""
    folder = tmp_path_factory.mktemp("refused")
    load("communities", size="tiny").save(folder / "given")
    (folder / "edges.csv").write_text("source,target,w,when\n0,1,2.5,monday\n2,1,1.5,\n0,1,0.5,friday\n")
    (folder / "small.yaml").write_text(SCENARIO)
    (folder / "study.yaml").write_text(
        "grid: {model.name: [gcn, gat]}\nzip: {pipeline.mode: [pipe, async, async], pipeline.staleness: [null, 0, 1]}\n"
    )
    for name in ("coar", "none.npz", "communities, data.size: tny", "cora, data.size: tiny"):
        text = f"base: {{data.name: {name}}}\nseeds: 1\n"
        (folder / f"on {name.replace(', data.size: ', ' ')}.yaml").write_text(text)
    (folder / "there.yaml").write_text("name: there\n")
    (folder / "folder.yaml").mkdir()
    return folder


@pytest.mark.parametrize(("command", "message"), list(zip(_LINES[::2], _LINES[1::2], strict=True)))
def test_a_wrong_command_is_refused_in_one_line_and_leaves_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str, message: str
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(machine, "measure", None)
    monkeypatch.setattr(search, "simulate", None)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    code = main(shlex.split(command)[1:])
    out, err = capsys.readouterr()
    *detected, last = err.splitlines()  # an import first describes its input
    last = last.replace(f"{folder}/", "")
    message = f"error: {message.strip()}"
    if message.endswith("…"):
        message, last = message[:-1], last[: len(message) - 1]
    assert (code, out, last) == (2, "", message)
    assert not detected or command.startswith("dorylax import")
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
