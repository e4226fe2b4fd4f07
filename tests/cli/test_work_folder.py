"""Temporary folders of `dorylax import` and `reorder`: foreign ones stay, own leftovers are removed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from dorylax.graph import Graph
from dorylax.graph.datasets import load


class Case(NamedTuple):
    words: tuple[str, ...]
    folder: str
    killed_in: str


CASES = {
    "import": Case(
        ("import", "edges.txt", "--out", "out", "--memory", "1GiB"),
        "out.import",
        "dorylax.graph.array_folder:ArrayWriter.write",
    ),
    "reorder": Case(("reorder", "given", "--out", "out"), ".out.scratch", "dorylax.graph.stream.moving:Buckets.append"),
}

_KILLED = """
import importlib, os, sys
from dorylax.cli import main
module, _, name = sys.argv.pop(1).partition(":")
kind, _, method = name.partition(".")
setattr(getattr(importlib.import_module(module), kind), method, lambda *_, **__: os._exit(9))
main(sys.argv[1:])
"""


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    monkeypatch.chdir(tmp_path)
    Path("edges.txt").write_text("0 1\n1 2\n2 0\n")
    load("communities", size="tiny").save("given")
    Graph.from_coo([0], [1]).save("out")
    Path("mine").mkdir()
    Path("mine/thesis.tex").write_text("chapter 1")
    return CASES[request.param]


def _link(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(Path(target).absolute())


def _folder(name: str, content: str = "") -> Callable[[Path], None]:
    def make(path: Path) -> None:
        (path / name).parent.mkdir(parents=True)
        (path / name).write_text(content)

    return make


def _with_link(name: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.mkdir()
        (path / name).symlink_to(Path("mine/thesis.tex").absolute())

    return make


FOREIGN = {
    "folder": (_folder("deep/notes.txt"), "a folder with deep"),
    "folder with the name of a step": (_folder("import.duckdb"), "a folder with import.duckdb"),
    "folder with the lock of another program": (_folder(".lock", "pid 17"), "a folder with .lock"),
    "folder with a link as lock": (_with_link(".lock"), "a folder with .lock"),
    "folder with a link as marker": (_with_link(".dorylax"), "a folder with .dorylax"),
    "file": (lambda path: path.write_text("notes"), "a file"),
    "link to a folder": (_link("mine"), "a symbolic link"),
    "link to nothing": (_link("absent"), "a symbolic link"),
}


def _tree() -> dict[str, str | bytes]:
    return {
        str(path): os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else "folder"
        for path in Path().rglob("*")
    }


@pytest.mark.parametrize("kind", FOREIGN)
def test_foreign_files_are_refused_untouched(dorylax, case: Case, kind: str) -> None:
    make, found = FOREIGN[kind]
    make(Path(case.folder))
    before = _tree()
    code, out, err = dorylax(*case.words)
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert err.endswith(
        f"{case.folder}: dorylax needs this name for temporary files, but there is {found}: move it away, "
        "or give another --out\n"
    )
    assert err.count("\n") == 1
    assert _tree() == before


def test_a_link_as_lock_in_an_own_folder_is_not_followed(dorylax, case: Case) -> None:
    _with_link(".lock")(Path(case.folder))
    (Path(case.folder) / ".dorylax").touch()
    before = _tree()
    code, _, err = dorylax(*case.words)
    assert code == 1
    assert err.endswith(f"{case.folder}: .lock is a symbolic link: remove that link\n")
    assert _tree() == before


def test_files_of_a_killed_process_are_removed(dorylax, case: Case) -> None:
    before = {path.name for path in Path().iterdir()}
    child = subprocess.run([sys.executable, "-c", _KILLED, case.killed_in, *case.words], check=False)
    assert child.returncode == 9
    assert len(list(Path(case.folder).iterdir())) > 2, "nothing but a lock and a marker"
    # Neither is a link followed that lies among its own files.
    (Path(case.folder) / "link").symlink_to(Path("mine").absolute())
    assert dorylax(*case.words).code == 0
    assert {path.name for path in Path().iterdir()} == before
    assert Path("mine/thesis.tex").read_text() == "chapter 1"
    assert Graph.from_folder("out").num_vertices > 2


@pytest.mark.parametrize("lock", [None, ""])
def test_a_process_that_was_killed_at_its_start_locks_nobody_out(dorylax, case: Case, lock: str | None) -> None:
    before = {path.name for path in Path().iterdir()}
    Path(case.folder).mkdir()
    if lock is not None:
        (Path(case.folder) / ".lock").write_text(lock)
    assert dorylax(*case.words).code == 0
    assert {path.name for path in Path().iterdir()} == before
