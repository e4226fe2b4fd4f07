"""Every task by one command: trained with several seeds, read back, and applied."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dorylax.config import RunConfig
from dorylax.experiments import load as load_sweeps
from dorylax.graph import Graph, merge_graphs
from dorylax.graph.dataset import Dataset
from dorylax.graph.datasets import load
from dorylax.tasks import LinkPrediction
from dorylax.tasks.all_pairs import rank_among_all
from dorylax.trainer import Trainer


@pytest.fixture
def targets(tmp_path: Path) -> Path:
    base = load("communities", size="tiny")
    labels = base.features[:, :2]
    masks = (base.train_mask, base.val_mask, base.test_mask)
    Dataset("mine", base.graph, base.features, labels, None, *masks).save(tmp_path / "mine")
    return tmp_path / "mine"


@pytest.fixture
def graphs(tmp_path: Path) -> Path:
    ring, path = Graph.from_coo([0, 1, 2], [1, 2, 0]), Graph.from_coo([0, 1], [1, 2])
    features = [np.diff(graph.host_rows()[0])[:, None] for graph in (ring, path)]
    place = np.arange(12) // 2 % 3
    masks = {"train_mask": place == 0, "val_mask": place == 1, "test_mask": place == 2}
    merge_graphs("shapes", [ring, path] * 6, features * 6, [1, 0] * 6, **masks).save(tmp_path / "shapes")
    return tmp_path / "shapes"


def _trained(dorylax: Any, folder: Path, *words: str) -> dict[str, Any]:
    code, out, err = dorylax("train", *words, "--epochs", "3", "--json", "--out", str(folder))
    assert (code, err) == (0, "")
    content: dict[str, Any] = json.loads(out)
    return content


def test_targets_of_vertices(dorylax: Any, targets: Path, tmp_path: Path) -> None:
    found = _trained(dorylax, tmp_path / "run", "--data", str(targets), "--metric", "mae", "--seeds", "2")
    assert found["metric"] == "mae"
    assert len(found["test_score"]["per_seed"]) == 2
    assert found["test_accuracy"]["mean"] is None
    frame = load_sweeps(tmp_path / "run", level="runs").sort_values("train.seed")
    assert frame["test_score"].tolist() == found["test_score"]["per_seed"]
    epochs = load_sweeps(tmp_path / "run")
    assert epochs["metric"].tolist() == ["mae"] * 6
    # The better seed is the one with the lower error.
    best = int(np.argmin(found["val_score"]["per_seed"]))
    code, out, _ = dorylax("predict", "--run", str(tmp_path / "run"), "--json", "--out", str(tmp_path / "out.csv"))
    content = json.loads(out)
    assert code == 0
    assert content["run"].endswith(f"seed-{best}")
    assert content["scores"]["test"] == pytest.approx(found["test_score"]["per_seed"][best], rel=1e-5)
    rows = list(csv.reader((tmp_path / "out.csv").read_text().splitlines()))
    assert rows[0] == ["vertex", "prediction", "label", "split"]
    assert len(rows[1][1].split()) == 2
    dorylax("predict", "--run", str(tmp_path / "run"), "--out", str(tmp_path / "out.npz"))
    with np.load(tmp_path / "out.npz") as archive:
        assert archive["outputs"].shape == (1000, 2)


def test_links(dorylax: Any, tmp_path: Path) -> None:
    words = ("--set", "data.size=tiny", "--task", "link-prediction")
    found = _trained(dorylax, tmp_path / "run", *words, "--metric", "average_precision")
    assert found["metric"] == "average_precision"
    assert found["config"]["task"]["negatives"] == "epoch"
    code, out, _ = dorylax("predict", "--run", str(tmp_path / "run"))
    assert code == 0
    assert "test average precision: " in out
    assert " pairs" in out
    summary = json.loads((tmp_path / "run" / "seed-0" / "summary.json").read_text())
    assert summary["test_score"] == found["test_score"]["mean"]
    assert summary["passes"] is None
    assert "among all" not in out
    assert (
        "test links among all vertices: MRR " in dorylax("predict", "--run", str(tmp_path / "run"), "--all-pairs").out
    )
    ranked = json.loads(dorylax("predict", "--run", str(tmp_path / "run"), "--all-pairs", "--json").out)["all_pairs"]
    data, task = load("communities", size="tiny"), LinkPrediction()
    config = RunConfig.load(tmp_path / "run" / "seed-0" / "config.yaml")
    trainer = Trainer.from_config(config, data, run_directory=tmp_path / "run" / "seed-0")
    split = task.split(data)
    for name, links in (("val", split.val), ("test", split.test)):
        among = rank_among_all(trainer.predict(graph=split.graph, x=data.features), links, data.graph)
        assert ranked[name]["mrr"] == among.mrr
        assert ranked[name]["hits_at_50"] == among.hits_at(50)


def test_graphs(dorylax: Any, graphs: Path, tmp_path: Path) -> None:
    words = ("--data", str(graphs), "--task", "graph-classification", "--set", "task.readout=sum")
    found = _trained(dorylax, tmp_path / "run", *words)
    assert found["metric"] == "accuracy"
    assert found["test_accuracy"]["mean"] is not None
    code, out, _ = dorylax("predict", "--run", str(tmp_path / "run"), "--json")
    assert code == 0
    assert json.loads(out)["graphs"] == 12
    assert json.loads(out)["all_pairs"] is None
    code, _, err = dorylax("predict", "--run", str(tmp_path / "run"), "--all-pairs")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "--all-pairs ranks links, and " in err
