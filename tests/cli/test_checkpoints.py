"""Commands whose checkpoints are elsewhere."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.buckets import aws, bucket  # noqa: F401

from dorylax.experiments.run import main as run_sweep
from dorylax.store.places import open_storage

pytestmark = pytest.mark.timeout(180)


def words(out: Path, setting: str, *more: str) -> list[str]:
    given = ["train", "--data", "communities", "--model", "gcn", "--set", "data.size=tiny", "--out", str(out)]
    return [*given, "--set", f"train.checkpoints={setting}", *more]


@pytest.fixture
def s3(bucket: str) -> str:  # noqa: F811
    return f"s3://{bucket}/mine"


def test_a_run_whose_folder_was_lost_goes_on_from_its_checkpoints(dorylax: Any, tmp_path: Path, s3: str) -> None:
    out = tmp_path / "run"
    assert dorylax(*words(out, s3, "--epochs", "2")).code == 0
    shutil.rmtree(out)
    answer = dorylax(*words(out, s3, "--epochs", "3"))
    assert answer.code == 2
    assert answer.err.startswith(f"error: {s3}/run/seed-0-")
    assert " already holds checkpoints of a run in " in answer.err
    assert answer.err.count("\n") == 1
    answer = dorylax(*words(out, s3, "--epochs", "3", "--resume", "--json"))
    assert answer.code == 0
    assert json.loads(answer.out)["epochs"] == [3]
    assert len((out / "seed-0" / "metrics.jsonl").read_text().splitlines()) == 3
    answer = dorylax("predict", "--run", str(out), "--json")
    assert (answer.code, json.loads(answer.out)["vertices"]) == (0, 1000)
    answer = dorylax(*words(tmp_path / "other", s3, "--resume"))
    assert answer.code == 2
    assert answer.err == (
        f"error: --out {tmp_path}/other holds no run to continue, and train.checkpoints = {s3} no checkpoints of one in "
        f"{tmp_path}/other: omit --resume to start one\n"
    )


@pytest.mark.usefixtures("aws")
def test_a_place_that_cannot_be_is_one_line(dorylax: Any, tmp_path: Path) -> None:
    answer = dorylax(*words(tmp_path / "run", "s3://nobodys-bucket/x"))
    assert answer.code == 1
    assert answer.err.startswith("error: s3://nobodys-bucket/x")
    assert answer.err.endswith(": there is no bucket nobodys-bucket: make one, or name another\n")
    assert answer.err.count("\n") == 1
    assert not (tmp_path / "run").exists()
    answer = dorylax(*words(tmp_path / "run", "s3:/bucket/x"))
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert "train.checkpoints must be a path or s3://bucket/prefix, got 's3:/bucket/x'" in answer.err


def test_sweeps_in_two_folders_share_nothing(tmp_path: Path, s3: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nor do the runs of one; the same command goes on from what a sweep has saved."""
    file = tmp_path / "mine.yaml"
    base = {"train.epochs": 2, "train.checkpoints": s3, "data.size": "tiny", "model.hidden_features": 4}
    file.write_text(json.dumps({"base": base, "grid": {"model.name": ["gcn", "mlp"]}, "seeds": 2}))
    for folder in ("one", "other"):
        command = ["--sweep", str(file), "--out", str(tmp_path / folder), "--no-report"]
        assert run_sweep(command) == 0, capsys.readouterr().err
    places = {name.rpartition("/epoch-")[0] for name in open_storage(s3).names() if name.endswith("/manifest.json")}
    assert len(places) == 8
    assert len({place.rpartition("-")[0] for place in places}) == 4
    for metrics in tmp_path.glob("*/runs/*/metrics.jsonl"):
        assert len(metrics.read_text().splitlines()) == 2
    tables = [(tmp_path / folder / "results.csv").read_bytes() for folder in ("one", "other")]
    assert tables[0] == tables[1]
    shutil.rmtree(tmp_path / "one" / "runs")
    assert run_sweep(["--sweep", str(file), "--out", str(tmp_path / "one"), "--no-report"]) == 0
    assert (tmp_path / "one" / "results.csv").read_bytes() == tables[0]
