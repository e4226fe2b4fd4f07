"""A flipped bit of a mapped array ends every command that loads it in one line; `--no-verify` takes it as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.stored import contents

from dorylax.experiments.run import main as sweep
from dorylax.graph import stored
from dorylax.graph.datasets import load
from dorylax.graph.graph_arrays import save_arrays

_TOLD = "array features is damaged: "


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(stored, "_LARGE", 1 << 14)
    monkeypatch.setenv("DORYLAX_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "data"
    load("communities", size="tiny").save(path)
    return path


def _flip(path: Path, name: str = "features") -> None:
    """The lowest bit of one element."""
    content = bytearray((path / f"{name}.npy").read_bytes())
    content[len(content) // 2 & ~3] ^= 1
    (path / f"{name}.npy").write_bytes(content)


def _train(*words: str) -> list[str]:
    return ["train", "--model", "mlp", "--epochs", "1", *words]


@pytest.mark.parametrize(
    "words", [_train("--no-save"), ["describe", "--model", "mlp"], ["partition", "--servers", "2"]]
)
def test_commands(dorylax: Any, whole: Path, words: list[str]) -> None:
    assert dorylax(*words, "--data", str(whole)).code == 0
    _flip(whole)
    code, out, err = dorylax(*words, "--data", str(whole))
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert f"{whole}: {_TOLD}" in err
    assert "--no-verify" in err
    assert dorylax(*words, "--data", str(whole), "--no-verify").code == 0


def test_a_run_is_the_same_whether_verified_or_not(dorylax: Any, whole: Path, tmp_path: Path) -> None:
    found = {}
    for name, words in {"yes": [], "no": ["--no-verify"]}.items():
        answer = dorylax(*_train("--data", str(whole), "--json", "--out", str(tmp_path / name), *words))
        found[name] = json.loads(answer.out)
    assert [one["config"]["data"].pop("verify") for one in found.values()] == [True, False]
    for one in found.values():
        del one["run_directory"], one["seconds_per_epoch"]
    assert found["yes"] == found["no"]


def test_resume_and_predict(dorylax: Any, whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert dorylax(*_train("--data", str(whole), "--out", str(run))).code == 0
    _flip(whole)
    assert _TOLD in dorylax("predict", "--run", str(run)).err
    assert dorylax("predict", "--run", str(run), "--no-verify").code == 0
    again = ["train", "--model", "mlp", "--data", str(whole), "--out", str(run), "--resume"]
    assert dorylax(*again, "--epochs", "1", "--no-verify").code == 0, "it is the same run, and done"
    assert _TOLD in dorylax(*again, "--epochs", "2").err
    assert "data" in dorylax(*again, "--epochs", "2", "--no-verify").err, "a checkpoint knows its data"
    _flip(whole)
    assert dorylax(*again, "--epochs", "2", "--no-verify").code == 0


def test_info_reads_labels_where_nothing_says_how_many_classes_there_are(
    dorylax: Any, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "_LARGE", 256)
    save_arrays(whole, {name: array for name, array in contents(whole).items() if name != "num_classes"})
    _flip(whole, "labels")
    assert "array labels is damaged" in dorylax("info", "--data", str(whole), "--model", "mlp").err
    assert dorylax("info", "--data", str(whole), "--model", "mlp", "--no-verify").code == 0
    assert "--no-verify describe a run" in dorylax("info", "--no-verify").err


def test_sweeps(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(
        f"base: {{data.name: {whole}, model.name: mlp, train.epochs: 1}}\ngrid: {{train.eval_every: [1, 2]}}\n"
    )
    words = ["--sweep", str(file), "--out", str(tmp_path / "sweep"), "--no-report"]
    _flip(whole)
    assert sweep(words) == 1
    assert _TOLD in "".join(path.read_text() for path in (tmp_path / "sweep" / "errors").iterdir())
    assert sweep([*words, "--no-verify"]) == 0
    capsys.readouterr()
    assert sweep([*words, "--dry-run"]) == 0
    assert "0 of 2 runs to do" in capsys.readouterr().out, "they are the same runs"
