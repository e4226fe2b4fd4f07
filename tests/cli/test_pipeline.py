"""Pipelines on the command line: what the commands show and leave behind."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dorylax.cli.seeds import pipeline_label
from dorylax.config import RunConfig
from dorylax.observers.progress import dollars
from dorylax.program.passes import PASSES

TINY = ("--set", "data.size=tiny", "--epochs", "3", "--model", "mlp")
ASYNC = ("--set", "pipeline.mode=async", "--set", "pipeline.servers=4", "--set", "pipeline.clock=virtual")
NEAR = ("--set", "train.target_accuracy=1.0", "--set", "pipeline.switch_margin=0.01")


def test_train_and_train_again_from_its_file(dorylax, tmp_path: Path) -> None:
    code, out, err = dorylax("train", *TINY, *ASYNC, "--json", "--out", str(tmp_path / "a"))
    assert (code, err) == (0, "")
    content = json.loads(out)
    assert content["seconds_per_epoch"] > 0
    assert content["config"]["pipeline"]["update"] == "per_epoch"
    assert content["config"]["pipeline"]["servers"] == 4
    assert content["pipeline"][0]["counters"]["graph_tasks"] > 0
    assert content["pipeline"][0]["bill"]["dollars"] > 0
    assert (tmp_path / "a" / "seed-0" / "trace.json").is_file()
    again = dorylax("train", "--config", str(tmp_path / "a" / "seed-0" / "config.yaml"), "--json", "--no-save")
    assert json.loads(again.out)["config"] == content["config"]
    assert json.loads(again.out)["final_loss"] == content["final_loss"]


def test_the_table_says_that_times_are_virtual_and_what_it_cost(dorylax, tmp_path: Path) -> None:
    out = dorylax("train", *TINY, *ASYNC, "--seeds", "2", "--out", str(tmp_path / "run")).out
    assert "simulated time per epoch" in out
    (line,) = (line for line in out.splitlines() if line.startswith("bill: "))
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    epochs = sum(results["epochs"])
    assert re.search(
        rf"asynchrony: ran ahead in \d of {epochs} epochs; the stability gate was closed in the others", out
    )
    total = sum(one["bill"]["dollars"] for one in results["pipeline"])
    assert line.startswith(f"bill: {dollars(total)} for ")
    assert "graph servers $" in line
    assert line.endswith("prices of cluster default, 2026-07)")
    out = dorylax("train", *TINY, "--set", "pipeline.servers=2", "--no-save").out
    assert "time per epoch" in out
    assert "virtual" not in out
    assert "bill" not in out
    assert "ran ahead" not in out


def test_what_the_progress_line_says() -> None:
    given = {"pipeline.mode": "async", "pipeline.staleness": 1, "pipeline.servers": 4, "pipeline.clock": "virtual"}
    assert pipeline_label(RunConfig.resolve()) == ""
    assert pipeline_label(RunConfig.resolve({"pipeline.mode": "pipe"})) == ", pipe on 1 server"
    assert pipeline_label(RunConfig.resolve(given)) == ", async S=1 on 4 servers, virtual time"


def test_predict_needs_no_pipeline(dorylax, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    assert dorylax("train", *TINY, *ASYNC, *NEAR, "--out", str(folder)).code == 0
    summary = json.loads((folder / "seed-0" / "summary.json").read_text())
    monkeypatch.setattr("dorylax.pipeline.engine.Pipeline.of", None)
    same = dorylax("predict", "--run", str(folder), "--json")
    other = dorylax("predict", "--run", str(folder), "--data", "communities", "--json")
    for answer in (same, other):
        assert answer.code == 0
        assert json.loads(answer.out)["accuracy"]["val"] == pytest.approx(summary["val_accuracy"])


@pytest.mark.parametrize(
    ("words", "applied"),
    [
        (("pipeline.mode=pipe",), ["reorder", "prune", "settle", "hoist", "fuse"]),
        (("pipeline.mode=pipe", "pipeline.clock=virtual"), list(PASSES)),
        (("pipeline.mode=async", "pipeline.clock=virtual"), list(PASSES)),
    ],
)
def test_describe_shows_the_program_that_the_pipeline_runs(dorylax, words: tuple[str, ...], applied: list[str]) -> None:
    options = [word for setting in words for word in ("--set", setting)]
    out = dorylax("describe", "--set", "data.size=tiny", "--model", "mlp", *options, "--json").out
    assert json.loads(out)["passes"] == applied
