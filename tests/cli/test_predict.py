"""`dorylax predict`: a run directory is enough."""

from __future__ import annotations

import csv
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dorylax.cli import main
from dorylax.cli.predict import choose_run
from dorylax.config import ConfigError, RunConfig
from dorylax.graph import Dataset
from dorylax.graph.datasets import load
from dorylax.store.checkpoint import Checkpoints
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
    load("communities", size="tiny").save(tmp_path / "same")
    other = _accuracy(dorylax, "--run", run, "--data", str(tmp_path / "same"))
    assert other == _accuracy(dorylax, "--run", run)
    assert _accuracy(dorylax, "--run", run, "--data", "communities") == other


def test_a_larger_graph(dorylax, trained: Path, tmp_path: Path) -> None:
    load("communities", size="tiny", num_vertices=1500).save(tmp_path / "larger")
    words = ("--run", str(trained / "seed-0"), "--data", str(tmp_path / "larger"))
    assert dorylax("predict", *words, "--out", str(tmp_path / "p.npz")).code == 0
    with np.load(tmp_path / "p.npz") as archive:
        assert archive["logits"].shape == (1500, 4)


def test_data_without_validation_vertices(dorylax, tmp_path: Path) -> None:
    words = ("--set", "data.size=tiny", "--epochs", "2", "--set", "train.patience=2", "--out", str(tmp_path / "run"))
    assert dorylax("train", *words).code == 0
    data = load("communities", size="tiny")
    dataclasses.replace(data, val_mask=np.zeros_like(data.val_mask)).save(tmp_path / "other")
    assert _accuracy(dorylax, "--run", str(tmp_path / "run"), "--data", str(tmp_path / "other"))["val"] is None


def test_data_of_other_widths_are_one_line(dorylax, trained: Path, tmp_path: Path) -> None:
    trained_on = load("communities", size="tiny")
    for option, message in (
        (
            {"num_features": 7},
            f"data with {trained_on.num_features} features and 4 classes, communities has 7 and 4: they must be the same to",
        ),
        ({"num_classes": 5}, r"] = 4 is out of range: must be ≥ 0 and < num_classes = 4, or -1 where"),
    ):
        load("communities", size="tiny", **option).save(tmp_path / "other")
        code, out, err = dorylax("predict", "--run", str(trained / "seed-0"), "--data", str(tmp_path / "other"))
        assert (code, out) == (2, "")
        assert message in err
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
    load("communities", size="tiny").save(made / "graph")
    (made / "mine.yaml").write_text("data.name: graph\nmodel.name: code/own.py:Net\ntrain.epochs: 2\n")
    monkeypatch.chdir(made)
    assert dorylax("train", "--config", "mine.yaml", "--out", "runs/first").code == 0
    code, wanted, _ = dorylax("predict", "--run", "runs/first", "--trust")
    assert code == 0
    monkeypatch.chdir(other)
    assert dorylax("predict", "--run", "../made/runs/first", "--trust")[:2] == (0, wanted)
    made.rename(moved)
    assert dorylax("predict", "--run", "../moved/runs/first", "--trust")[:2] == (0, wanted)
    shutil.rmtree(moved / "graph")
    code, _, error = dorylax("predict", "--run", "../moved/runs/first", "--trust")
    assert code == 2
    assert "there is no data set 'graph'" in error


V = 40
Arrays = dict[str, np.ndarray]


def _arrays(**labels: np.ndarray) -> Arrays:
    rng = np.random.default_rng(0)
    ends = np.sort(rng.integers(0, V, 160)), rng.integers(0, V, 160).astype(np.int32)
    features = rng.normal(size=(V, 6)).astype(np.float32)
    return {"indptr": np.searchsorted(ends[0], np.arange(V + 1)), "indices": ends[1], "features": features, **labels}


Y = np.arange(V) % 3
NAMES = np.array([b"ash", b"birch", b"cedar"])
TRAINED = {
    "classes": {"labels": Y, "class_names": NAMES},
    "targets": {"labels": np.ones((V, 2))},
    "several": {"labels": (np.arange(3 * V).reshape(V, 3) % 2).astype(np.float32), "class_names": NAMES},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs on labels of each kind."""
    folder = tmp_path_factory.mktemp("kinds")
    for kind, labels in TRAINED.items():
        np.savez(folder / f"{kind}.npz", **_arrays(**labels))
        words = ["train", "--data", str(folder / f"{kind}.npz"), "--epochs", "1", "--set", "model.hidden_features=4"]
        assert main([*words, "--out", str(folder / kind)]) == 0
    return {kind: folder / kind for kind in TRAINED}


def _predict(dorylax, run: Path, folder: Path, **arrays: np.ndarray) -> list[dict[str, str]]:
    np.savez(folder / "new.npz", **_arrays(**arrays))
    words = ("--run", str(run), "--data", str(folder / "new.npz"), "--out", str(folder / "p.csv"))
    code, out, err = dorylax("predict", *words)
    assert code == 0, err
    assert ("40 vertices without labels" in out) != ("train " in out)
    return list(csv.DictReader((folder / "p.csv").read_text().splitlines()))


@pytest.mark.parametrize("labels", [{}, {"labels": np.full(V, -1)}, {"labels": np.full(V, np.nan)}])
@pytest.mark.parametrize("kind", TRAINED)
def test_data_without_labels(dorylax, runs: dict[str, Path], tmp_path: Path, kind: str, labels: Arrays) -> None:
    rows = _predict(dorylax, runs[kind], tmp_path, **labels)
    assert {(row["label"], row["split"]) for row in rows} == {("", "")}
    same = _predict(dorylax, runs[kind], tmp_path, **TRAINED[kind])
    assert [row["prediction"] for row in rows] == [row["prediction"] for row in same]


@pytest.mark.parametrize(
    ("labels", "shown"),
    [
        ({"labels": np.minimum(Y, 1)}, ["ash", "birch", "birch"]),
        ({"labels": np.minimum(Y, 1), "num_classes": np.array(2)}, ["ash", "birch", "birch"]),
        ({"labels": np.minimum(Y, 1), "class_names": np.array(["birch", "ash"])}, ["birch", "ash", "ash"]),
        ({"labels": Y - 1, "class_names": np.array([b"cedar", b"ash"])}, ["", "cedar", "ash"]),
    ],
)
def test_data_with_fewer_classes_go_by_their_names(dorylax, runs, tmp_path, labels: Arrays, shown: list[str]) -> None:
    rows = _predict(dorylax, runs["classes"], tmp_path, **labels, original_ids=np.array([f"v{k}\n" for k in range(V)]))
    assert [row["label"] for row in rows][:3] == shown
    assert {row["prediction"] for row in rows} <= {"ash", "birch", "cedar"}


@pytest.mark.parametrize(
    ("columns", "shown"),
    [([0, 1, 2], ["birch", "ash;cedar"]), ([2, 0, 1], ["birch", "ash;cedar"]), ([1, 2], ["birch", "cedar"])],
)
def test_columns_of_several_classes_go_by_their_names(dorylax, runs, tmp_path, columns, shown) -> None:
    arrays = {"labels": TRAINED["several"]["labels"][:, columns], "class_names": NAMES[columns]}
    rows = _predict(dorylax, runs["several"], tmp_path, **arrays, multilabel=np.array(True))
    assert [row["label"] for row in rows][:2] == shown
    same = _predict(dorylax, runs["several"], tmp_path)
    assert [row["prediction"] for row in rows] == [row["prediction"] for row in same]


def test_accuracy_by_class(dorylax, runs: dict[str, Path]) -> None:
    words = ("predict", "--run", str(runs["classes"]))
    content = json.loads(dorylax(*words, "--json").out)
    assert content["class_names"] == ["ash", "birch", "cedar"]
    right = sum(one["test_examples"] * one["test_accuracy"] for one in content["by_class"].values())
    examples = sum(one["test_examples"] for one in content["by_class"].values())
    assert content["accuracy"]["test"] == pytest.approx(right / examples)
    (line,) = (line for line in dorylax(*words).out.splitlines() if line.startswith("test accuracy by class: ash "))
    assert line.count(" % of ") == len(content["by_class"])
    for kind, names in (("several", ["ash", "birch", "cedar"]), ("targets", None)):
        content = json.loads(dorylax("predict", "--run", str(runs[kind]), "--json").out)
        assert (content["class_names"], content["by_class"]) == (names, None)


@pytest.mark.parametrize("case", [("several", "summary"), ("several", "data"), ("targets", "data")])
def test_checkpoints_of_versions_that_did_not_record_the_kind(dorylax, runs, tmp_path, monkeypatch, case) -> None:
    """Their runs predict on data without labels as on their own: their summary or their data tell the kind."""
    (kind, left), restore = case, Checkpoints.restore

    def old(self: Checkpoints, **options: Any) -> Any:
        found = restore(self, **options)
        assert found is not None
        for name in ("multilabel", "targets", "class_names"):
            found.record["run"]["data"].pop(name, None)
        return found

    monkeypatch.setattr(Checkpoints, "restore", old)
    run = shutil.copytree(runs[kind], tmp_path / "run")
    if left == "summary":
        monkeypatch.setattr("dorylax.trainer.saving.run_files.shape_of", lambda _: None)
    else:
        (run / "seed-0" / "summary.json").unlink()
    wanted = [row["prediction"] for row in _predict(dorylax, run, tmp_path, labels=TRAINED[kind]["labels"])]
    assert [row["prediction"] for row in _predict(dorylax, run, tmp_path)] == wanted


def test_names_are_in_the_npz_and_unknown_classes_are_one_line(dorylax, runs, tmp_path: Path) -> None:
    ids = np.arange(V)[::-1] * 10
    data = Dataset.from_folder(runs["classes"].with_suffix(".npz"))
    dataclasses.replace(data, original_ids=ids).reorder(np.roll(np.arange(V), 7)).save(tmp_path / "new")
    words = ("predict", "--run", str(runs["classes"]), "--data", str(tmp_path / "new"))
    assert dorylax(*words, "--out", str(tmp_path / "p.npz")).code == 0
    with np.load(tmp_path / "p.npz") as archive:
        assert archive["class_names"].tolist() == NAMES.tolist()
        assert archive["original_ids"].tolist() == ids.tolist()
    np.savez(tmp_path / "new.npz", **_arrays(labels=Y, class_names=np.array(["ash", "oak", "cedar"])))
    code, out, err = dorylax(*words[:-1], str(tmp_path / "new.npz"))
    assert (code, out) == (2, "")
    assert err.endswith("new.npz: labels[1] is the class 'oak', which is not one of 'ash', 'birch', 'cedar'\n")


def test_what_has_no_labels_is_not_trained_on(dorylax, tmp_path: Path) -> None:
    np.savez(tmp_path / "new.npz", **_arrays(labels=np.full(V, -1), num_classes=np.array(3)))
    code, out, err = dorylax("train", "--data", str(tmp_path / "new.npz"), "--no-save", "--epochs", "1", "--json")
    assert "new has no labels: training needs some, predict does not" in err + out
    assert code != 0
    np.savez(tmp_path / "new.npz", **_arrays())
    code, out, err = dorylax("info", "--data", str(tmp_path / "new.npz"))
    assert (code, err) == (0, "")
    assert out.endswith("the data have no labels: they can be predicted on, and not trained on\n")
