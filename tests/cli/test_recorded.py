"""A run that is resumed goes on with what it recorded, whatever recipes say by now."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dorylax.config import recipe
from dorylax.graph.datasets import load


@pytest.fixture
def begun(dorylax, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """The command of a run that began when the published recipe was the default of its data."""
    load("communities", size="tiny").save_npz(tmp_path / "mine.npz")
    words = ("train", "--data", str(tmp_path / "mine.npz"), "--model", "mlp", "--out", str(tmp_path / "run"))
    with monkeypatch.context() as patch:
        patch.setitem(recipe.PUBLISHED_FOR, str(tmp_path / "mine.npz"), {})
        assert dorylax(*words, "--epochs", "2").code == 0
    return words


def _config(folder: Path) -> dict[str, object]:
    return json.loads((folder / "run" / "results.json").read_text())["config"]


def test_with_the_values_of_then(dorylax, begun: tuple[str, ...], tmp_path: Path) -> None:
    before = _config(tmp_path)
    assert (before["model"]["hidden_features"], before["data"]["row_normalise"]) == (16, True)
    code, out, _ = dorylax(*begun, "--seeds", "2", "--resume")
    assert code == 0
    assert _config(tmp_path) == before
    assert re.match(r"recipe: published \(.*\), but train.epochs=2$", out.splitlines()[0])
    assert (tmp_path / "run" / "seed-1" / "summary.json").is_file()


@pytest.mark.parametrize("given", [("--set", "data.row_normalise=false"), ("--recipe", "default")])
def test_but_what_is_given_now_is_compared(dorylax, begun: tuple[str, ...], given: tuple[str, str]) -> None:
    code, _, err = dorylax(*begun, "--resume", *given)
    assert code == 2
    assert "data.row_normalise" in err


def test_and_another_optimizer_is_refused_as_ever(dorylax, begun: tuple[str, ...]) -> None:
    code, _, err = dorylax(*begun, "--resume", "--set", "optimizer.name=sgd")
    assert code == 2
    assert 'optimizer.name: "adam" there, "sgd" here' in err
    assert "data.row_normalise" not in err
