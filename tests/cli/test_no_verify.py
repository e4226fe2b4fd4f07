"""A flipped bit of a mapped array ends every command that loads it in one line; `--no-verify` takes it as it is."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dorylax.experiments.run import main as sweep
from dorylax.graph import npz
from dorylax.graph.datasets import load

_TOLD = "array features is damaged: bytes "


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(npz, "_LARGE", 1 << 14)
    monkeypatch.setenv("DORYLAX_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "data.npz"
    load("communities", size="tiny").save_npz(path)
    return path


def _flip(path: Path) -> None:
    """The lowest bit of one feature."""
    info = zipfile.ZipFile(path).getinfo("features.npy")
    content = bytearray(path.read_bytes())
    content[info.header_offset + info.file_size // 2 & ~3] ^= 1
    path.write_bytes(content)


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
    before = whole.read_bytes()
    _flip(whole)
    assert _TOLD in dorylax("predict", "--run", str(run)).err
    assert dorylax("predict", "--run", str(run), "--no-verify").code == 0
    again = ["train", "--model", "mlp", "--data", str(whole), "--out", str(run), "--resume"]
    assert dorylax(*again, "--epochs", "1", "--no-verify").code == 0, "it is the same run, and done"
    assert _TOLD in dorylax(*again, "--epochs", "2").err
    assert "data" in dorylax(*again, "--epochs", "2", "--no-verify").err, "a checkpoint knows its data"
    whole.write_bytes(before)
    assert dorylax(*again, "--epochs", "2", "--no-verify").code == 0


def test_info_reads_labels_where_nothing_says_how_many_classes_there_are(
    dorylax: Any, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(npz, "_LARGE", 256)
    with np.load(whole) as found:
        arrays = {name: found[name] for name in found.files if name not in ("checksums.json", "num_classes")}
    npz.write_npz(whole, arrays)
    info = zipfile.ZipFile(whole).getinfo("labels.npy")
    content = bytearray(whole.read_bytes())
    content[info.header_offset + 1000 & ~3] ^= 1
    whole.write_bytes(content)
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
