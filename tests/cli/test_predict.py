"""`dorylax predict`: a run directory is enough."""

from __future__ import annotations

import csv
import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from dorylax.cli.predict import choose_run
from dorylax.config import ConfigError, RunConfig
from dorylax.graph.datasets import load
from dorylax.trainer import prepare_data


def _summary(run: Path) -> dict[str, float]:
    content: dict[str, float] = json.loads((run / "summary.json").read_text())
    return content


@pytest.mark.parametrize("seed", [0, 1])
def test_accuracy_is_that_of_the_best_epoch(dorylax, trained: Path, seed: int) -> None:
    run = trained / f"seed-{seed}"
    code, out, _ = dorylax("predict", "--run", str(run), "--json")
    assert code == 0
    found, summary = json.loads(out), _summary(run)
    assert found["run"] == str(run)
    assert found["accuracy"]["val"] == pytest.approx(summary["val_accuracy"])
    assert found["accuracy"]["test"] == pytest.approx(summary["test_accuracy"])
    assert json.loads(dorylax("predict", "--run", str(trained), "--seed", str(seed), "--json").out) == found


def test_several_seeds_give_the_best_validation(trained: Path) -> None:
    values = [_summary(trained / f"seed-{seed}")["val_accuracy"] for seed in (0, 1)]
    assert choose_run(trained) == trained / f"seed-{int(np.argmax(values))}"


def test_npz_and_csv_agree(dorylax, trained: Path, tmp_path: Path) -> None:
    npz, table = tmp_path / "p.npz", tmp_path / "p.csv"
    assert dorylax("predict", "--run", str(trained), "--seed", "0", "--out", str(npz)).code == 0
    out = dorylax("predict", "--run", str(trained), "--seed", "0", "--out", str(table)).out
    assert out.splitlines()[-1] == f"predictions: {table}"
    data = prepare_data(RunConfig.load(trained / "seed-0" / "config.yaml").data)
    with np.load(npz, allow_pickle=False) as archive:
        assert archive["logits"].shape == (1000, 4)
        np.testing.assert_array_equal(archive["logits"].argmax(1), archive["predictions"])
        predictions = archive["predictions"]
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [int(row["prediction"]) for row in rows] == predictions.tolist()
    assert [int(row["label"]) for row in rows] == data.labels.tolist()
    assert [row["vertex"] for row in rows] == [str(vertex) for vertex in range(1000)]
    assert [row["split"] == "test" for row in rows] == data.test_mask.tolist()
    assert {path.name for path in tmp_path.iterdir()} == {"p.npz", "p.csv"}


def test_what_cannot_be_is_one_line(dorylax, trained: Path, tmp_path: Path) -> None:
    for words, message in (
        (
            ["--run", str(tmp_path)],
            f"{tmp_path} is not a run directory: it has neither config.yaml nor seed-0/config.yaml",
        ),
        (["--run", str(trained), "--seed", "7"], f"{trained} has no seed 7: it has 0, 1"),
        (["--run", str(trained), "--out", "p.txt"], "--out must end in .npz or .csv, got 'p.txt'"),
    ):
        assert dorylax("predict", *words) == (2, "", f"error: {message}\n")
    with pytest.raises(ConfigError, match="is one run"):
        choose_run(trained / "seed-0", 1)


def test_a_model_made_in_python_is_not_guessed_at(dorylax, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("schema: 1\nmodel: {class: Mine}\n")
    code, _, err = dorylax("predict", "--run", str(tmp_path))
    assert code == 2
    assert "a model made in Python (Mine)" in err


def _accuracy(dorylax, *words: str) -> dict[str, float]:
    code, out, err = dorylax("predict", *words, "--json")
    assert code == 0, err
    found: dict[str, float] = json.loads(out)["accuracy"]
    return found


def test_the_same_graph_under_another_name(dorylax, trained: Path, tmp_path: Path) -> None:
    run = str(trained / "seed-0")
    load("communities", size="tiny").save_npz(tmp_path / "same.npz")
    other = _accuracy(dorylax, "--run", run, "--data", str(tmp_path / "same.npz"))
    assert other == _accuracy(dorylax, "--run", run)
    assert _accuracy(dorylax, "--run", run, "--data", "communities") == other


def test_a_larger_graph(dorylax, trained: Path, tmp_path: Path) -> None:
    load("communities", size="tiny", num_vertices=1500).save_npz(tmp_path / "larger.npz")
    words = ("--run", str(trained / "seed-0"), "--data", str(tmp_path / "larger.npz"))
    assert dorylax("predict", *words, "--out", str(tmp_path / "p.npz")).code == 0
    with np.load(tmp_path / "p.npz") as archive:
        assert archive["logits"].shape == (1500, 4)


def test_data_without_validation_vertices(dorylax, tmp_path: Path) -> None:
    words = ("--set", "data.size=tiny", "--epochs", "2", "--set", "train.patience=2", "--out", str(tmp_path / "run"))
    assert dorylax("train", *words).code == 0
    data = load("communities", size="tiny")
    dataclasses.replace(data, val_mask=np.zeros_like(data.val_mask)).save_npz(tmp_path / "other.npz")
    assert _accuracy(dorylax, "--run", str(tmp_path / "run"), "--data", str(tmp_path / "other.npz"))["val"] is None


def test_data_of_other_widths_are_one_line(dorylax, trained: Path, tmp_path: Path) -> None:
    trained_on = load("communities", size="tiny")
    for option in ({"num_features": 7}, {"num_classes": 3}):
        data = load("communities", size="tiny", **option)
        data.save_npz(tmp_path / "other.npz")
        code, out, err = dorylax("predict", "--run", str(trained / "seed-0"), "--data", str(tmp_path / "other.npz"))
        assert (code, out) == (2, "")
        assert f"data with {trained_on.num_features} features and {trained_on.num_classes} classes, " in err
        assert f"has {data.num_features} and {data.num_classes}: they must be the same to predict\n" in err
        assert err.count("\n") == 1


def test_stray_folders_are_passed_over(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "seed-0", tmp_path / "run" / "seed-0")
    shutil.copytree(trained / "seed-0", tmp_path / "run" / "seed-abc")
    assert choose_run(tmp_path / "run") == tmp_path / "run" / "seed-0"


OWN = """
from flax import nnx
from dorylax import ops

class Net(nnx.Module):
    def __init__(self, in_features, out_features, *, rngs):
        self.dense = nnx.Linear(in_features, out_features, rngs=rngs)

    def __call__(self, graph, x):
        return self.dense(ops.gather(graph, x, reduce="mean"))
"""


def test_a_run_of_own_code_and_data_from_any_folder(dorylax, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are named relative to the folder that the run was started in, and found from others; also if all have moved."""
    made, other, moved = tmp_path / "made", tmp_path / "other", tmp_path / "moved"
    (made / "code").mkdir(parents=True)
    other.mkdir()
    (made / "code" / "own.py").write_text(OWN)
    load("communities", size="tiny").save_npz(made / "graph.npz")
    (made / "mine.yaml").write_text("data.name: graph.npz\nmodel.name: code/own.py:Net\ntrain.epochs: 2\n")
    monkeypatch.chdir(made)
    assert dorylax("train", "--config", "mine.yaml", "--out", "runs/first").code == 0
    code, wanted, _ = dorylax("predict", "--run", "runs/first", "--trust")
    assert code == 0
    monkeypatch.chdir(other)
    assert dorylax("predict", "--run", "../made/runs/first", "--trust")[:2] == (0, wanted)
    made.rename(moved)
    assert dorylax("predict", "--run", "../moved/runs/first", "--trust")[:2] == (0, wanted)
    (moved / "graph.npz").unlink()
    code, _, error = dorylax("predict", "--run", "../moved/runs/first", "--trust")
    assert code == 2
    assert "there is no file graph.npz" in error
