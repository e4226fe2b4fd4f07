"""What tests of the command line share: calling it in this process, and one finished run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from dorylax.cli import main

TINY = ("--set", "data.size=tiny", "--epochs", "2")


SCENARIO = """
graph: {vertices: 2000, edges: 40000, features: 30, classes: 4}
model: {name: gcn, hidden_features: 8}
train: {epochs: 20}
pipeline: {servers: 2, intervals: 3}
"""


class Answer(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[..., Answer]


@pytest.fixture
def dorylax(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs the command line with these words."""

    def call(*words: str) -> Answer:
        code = main(words)
        return Answer(code, *capsys.readouterr())

    return call


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    """The file of a small scenario."""
    path = tmp_path / "small.yaml"
    path.write_text(SCENARIO)
    return str(path)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with two seeds on the tiny built-in graph. Not to be changed."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    assert main(["train", *TINY, "--seeds", "2", "--json", "--out", str(folder)]) == 0
    return folder
