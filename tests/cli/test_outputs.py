"""No command writes over a file that it reads, whatever the file is called and whoever names it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cli.conftest import Command
from support.stored import contents

from dorylax.cli import main

READ = {
    "archive": ("describe --data g.npz --mermaid g.npz", "g.npz"),
    "array of a data set": ("describe --data g --mermaid g/features.npy", "g/features.npy"),
    "archive by --set": ("describe --set data.name=g.npz --mermaid g.npz", "g.npz"),
    "archive in a file": ("describe --config names.yaml --mermaid g.npz", "g.npz"),
    "file of settings": ("describe --config names.yaml --mermaid names.yaml", "names.yaml"),
    "model": ("describe --data g.npz --model model.py:Model --mermaid model.py", "model.py"),
    "archive of a run": ("predict --run run/seed-0 --out g.npz", "g.npz"),
    "other archive": ("predict --run run/seed-0 --data other.npz --out other.npz", "other.npz"),
    "archive of an export": ("export run --out g.npz", "g.npz"),
    "file of a run": ("export run --out run/seed-0/config.yaml", "run/seed-0/config.yaml"),
    "checkpoint": ("export run --out {checkpoint}", "{checkpoint}"),
    "reorder": ("reorder g.npz --out g.npz", "g.npz"),
    "edges": ("import e.npz --memory 1GiB --out e.npz", "e.npz"),
    "second file of edges": ("import e.txt e.npz --memory 1GiB --out e.npz", "e.npz"),
    "pattern of edges": ("import *.npz --memory 1GiB --out e.npz", "e.npz"),
    "array of an archive": ("import e.txt --memory 1GiB --features x.npz:x --out x.npz", "x.npz"),
    "named array": ("import e.txt --memory 1GiB --vertex-data w=x.npz:x --out x.npz", "x.npz"),
    "column of a table": ("import e.txt --memory 1GiB --labels t.csv:y --out t.csv", "t.csv"),
    "data set": ("predict --run run/seed-0 --data known --out known.npz", "known.npz"),
    "data set to describe": ("describe --data known --mermaid known.npz", "known.npz"),
    "features": ("import e.txt --memory 1GiB --features x.npz --out x.npz", "x.npz"),
    "mask": ("import e.txt --memory 1GiB --out x.npz --train-mask x.npz", "x.npz"),
    "values of edges": ("import e.txt --memory 1GiB --edge-data w=x.npz --out x.npz", "x.npz"),
    "values of vertices": ("import e.txt --memory 1GiB --vertex-data w=x.npz --out x.npz", "x.npz"),
    "scenario": ("simulate --scenario names.yaml --trace names.yaml", "names.yaml"),
    "scenario of a what-if": ("simulate --scenario names.yaml --what-if servers=1 --csv names.yaml", "names.yaml"),
    "archive of a scenario": ("simulate --scenario names.yaml --trace g.npz", "g.npz"),
    "versions": ("aws image --lock lock.txt --context lock.txt", "lock.txt"),
}


def _by_link(file: Path) -> str:
    Path("link").symlink_to(file)
    return "link"


def _by_hard_link(file: Path) -> str:
    os.link(file, "hard.npz")
    return "hard.npz"


def _by_another_way(file: Path) -> str:
    Path("sub").mkdir()
    return f"sub/../{file}"


def _by_path(file: Path) -> str:
    return str(file.absolute())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file of each kind. Not to be changed."""
    folder = tmp_path_factory.mktemp("read")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["generate", "communities", "--size", "tiny", "--out", "g"]) == 0
        np.savez("g.npz", **contents("g"))
        words = ["train", "--data", "g.npz", "--epochs", "1", "--set", "model.hidden_features=2", "--out", "run"]
        assert main([*words, "--set", "train.checkpoint_every=1"]) == 0
        shutil.copyfile("g.npz", "other.npz")
        shutil.copyfile("g.npz", "known.npz")
        Path("t.csv").write_text("y\n1\n")
        np.savez("e.npz", edge_index=np.array([[0, 1], [1, 0]]))
        np.savez("x.npz", x=np.ones((2, 1), np.float32))
        Path("e.txt").write_text("0 1\n1 0\n")
        Path("names.yaml").write_text("data.name: g.npz\npipeline: {servers: 1, intervals: 1}\n")
        Path("model.py").write_text("class Model: pass\n")
        Path("lock.txt").write_text("")
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a copy of an archive."""
    shutil.copyfile(made / "g.npz", tmp_path / "g.npz")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("words", "file"), READ.values(), ids=list(READ))
def test_what_is_read_is_not_written(
    dorylax: Command, made: Path, monkeypatch: pytest.MonkeyPatch, words: str, file: str
) -> None:
    monkeypatch.chdir(made)
    monkeypatch.setenv("DORYLAX_DATA", str(made))
    checkpoint = str(next(Path("run").rglob("manifest.json")))
    path = Path(file.format(checkpoint=checkpoint))
    before = path.read_bytes()
    code, _, err = dorylax(*words.format(checkpoint=checkpoint).split())
    assert code == 2
    assert err.startswith("error: --")
    assert "is a file that this command reads" in err
    assert err.endswith(": choose another name\n")
    assert err.count("\n") == 1
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", [_by_link, _by_hard_link, _by_another_way, _by_path])
@pytest.mark.usefixtures("folder")
def test_nor_by_another_name(dorylax: Command, name: Callable[[Path], str]) -> None:
    before = Path("g.npz").read_bytes()
    other = name(Path("g.npz"))
    for data, out in (("g.npz", other), (other, "g.npz")):
        code, _, err = dorylax("describe", "--data", data, "--mermaid", out)
        assert (code, "is a file that this command reads" in err) == (2, True)
    assert Path("g.npz").read_bytes() == before


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("a\x1b]0;x", r"the name of a file must have no control characters, got 'a\x1b]0;x'"),
        ("a\0b", r"the name of a file must have no control characters, got 'a\x00b'"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_what_cannot_be_written_is_said_at_once(dorylax: Command, out: str, said: str) -> None:
    assert dorylax("describe", "--data", "nowhere.npz", "--mermaid", out) == (2, "", f"error: {said}\n")
