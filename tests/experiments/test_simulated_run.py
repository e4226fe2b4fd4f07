"""Runs that are simulated: what they leave, and sweeps of them from end to end."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest

from dorylax import experiments
from dorylax.experiments import runner
from dorylax.experiments.executors.local import InProcess
from dorylax.experiments.measures import MEASURES
from dorylax.experiments.run import main
from dorylax.experiments.runner import USUAL, directory, inspect, run_one
from dorylax.experiments.sweep_file import load, read
from dorylax.simulation.run import simulate

TEXT = """\
simulate: true
base:
  graph: {vertices: 2000, edges: 40000, features: 30, classes: 4}
  model.hidden_features: 8
  train.epochs: 20
  pipeline.servers: 2
  pipeline.intervals: 3
  simulation.epochs: 2
grid:
  simulation.backend: [functions, cpu]
  pipeline.mode: [pipe, no-pipe]
seeds: 2
compare: {baseline: {pipeline.mode: pipe}}
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the sweep above, with its file and a report. Not to be changed."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "s.yaml").write_text(TEXT)
    assert main(["--sweep", str(folder / "s.yaml"), "--out", str(folder / "out"), "--jobs", "1"]) == 0
    return folder / "out"


def test_results_are_those_of_the_simulations(finished: Path) -> None:
    rows = list(csv.DictReader((finished / "results.csv").read_text().splitlines()))
    runs = {run.key: run for run in load(finished.parent / "s.yaml").runs}
    assert [row["run"] for row in rows] == sorted(runs)
    for row in rows:
        run = runs[row["run"]]
        found = simulate(run.simulation.scenario(run.name, run.config), epochs=2)
        assert row["status"] == "done"
        assert float(row["epoch_seconds"]) == found.epoch
        assert float(row["dollars"]) == found.bill.total
        assert row["simulation.backend"] == found.backend
        assert row["graph.vertices"] == "2000"
    assert not {"test_accuracy", "final_loss", "data.name"} & rows[0].keys()
    timings = list(csv.DictReader((finished / "timings.csv").read_text().splitlines()))
    assert all(float(row["wall_seconds"]) > 0 for row in timings)


def test_jobs_and_interruptions_change_no_byte(finished: Path, tmp_path: Path) -> None:
    words = ["--sweep", str(finished.parent / "s.yaml"), "--out", str(tmp_path / "out"), "--no-report", "--jobs", "2"]
    assert main([*words, "--only", "simulation.backend=cpu"]) == 0
    assert main(words) == 0
    assert (tmp_path / "out" / "results.csv").read_bytes() == (finished / "results.csv").read_bytes()


def test_nothing_is_done_twice(
    finished: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("simulated again")

    monkeypatch.setattr(runner, "simulate_one", fail)
    assert main(["--sweep", str(finished.parent / "s.yaml"), "--out", str(finished), "--no-report"]) == 0
    out = capsys.readouterr().out
    assert "an epoch" in out
    assert "accuracy" not in out


def test_frames(finished: Path) -> None:
    runs = experiments.load(finished, level="runs")
    assert len(runs) == 8
    assert set(MEASURES) <= set(runs.columns)
    assert not {"test_accuracy", "data.name"} & set(runs.columns)
    assert (runs["value"] > 0).all()
    epochs = experiments.load(finished)
    assert len(epochs) == 16
    assert epochs["loss"].isna().all()
    both = epochs.groupby("run")["seconds"].last()
    assert both.to_dict() == pytest.approx(runs.set_index("run")["epoch_seconds"].to_dict())


def test_a_damaged_file_is_written_anew(finished: Path, tmp_path: Path) -> None:
    run, other = load(finished.parent / "s.yaml").runs[:2]
    path = directory(tmp_path, run) / "simulated.json"
    assert inspect(tmp_path, run).status == "open"
    path.parent.mkdir(parents=True)
    good = (directory(finished, run) / "simulated.json").read_text()
    for text, problem in (
        (good.replace('"seconds"', '"second"', 1), "is damaged"),
        ("{", "is damaged"),
        ((directory(finished, other) / "simulated.json").read_text(), "holds another run than its name says"),
    ):
        path.write_text(text)
        outcome = inspect(tmp_path, run)
        assert outcome.status == "failed"
        assert problem in (outcome.error or "")
    (done,) = InProcess().execute([run], tmp_path, _Deaf(), USUAL)
    assert done.status == "done"
    assert json.loads(path.read_text())["found"] == json.loads(good)["found"]


def test_what_cannot_be_simulated_fails_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        "simulate: true\nbase: {graph: {vertices: 2000, edges: 40000, features: 30, classes: 4}}\n"
        'grid: {model.name: ["support.unsplittable:Reversed", gcn]}\n'
    )
    assert main(["--sweep", str(path), "--out", str(tmp_path / "out"), "--no-report", "--jobs", "1"]) == 1
    err = capsys.readouterr().err
    assert "Reversed, seed 0: failed" in err
    assert "gcn, seed 0: an epoch" in err


def test_a_graph_that_is_too_small_is_known_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        "simulate: true\nbase: {graph: {vertices: 20, edges: 40, features: 30, classes: 4}, pipeline.intervals: 21}\n"
    )
    assert main(["--sweep", str(path), "--out", str(tmp_path / "out")]) == 2
    assert "pipeline.intervals = 21" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_nothing_for_tensorboard(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--sweep", str(finished.parent / "s.yaml"), "--out", str(finished), "--tensorboard"]) == 2
    assert "--tensorboard shows what is trained" in capsys.readouterr().err


def test_of_a_sweep_that_also_trains_tensorboard_shows_what_is_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.yaml").write_text(
        "simulate: true\n"
        "base: {pipeline: {servers: 2, intervals: 2}}\n"
        "parts:\n"
        "  taken: {base: {graph: {vertices: 200, edges: 400, features: 30, classes: 4}}, grid: {pipeline.mode: [pipe]}}\n"
        "  trained:\n"
        "    simulate: false\n"
        "    base: {data.size: tiny, train.epochs: 1, pipeline.clock: virtual}\n"
        "    grid: {pipeline.mode: [pipe]}\n"
    )
    words = ["--sweep", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "out"), "--tensorboard", "--no-report"]
    assert main([*words, "--jobs", "1"]) == 0
    assert "--tensorboard: 1 of 2 runs are simulated, and leave nothing to show" in capsys.readouterr().err
    (events,) = (tmp_path / "out").glob("runs/*/tensorboard")
    assert (events.parent / "summary.json").is_file()


def test_it_leaves_nothing_without_a_folder() -> None:
    run = read(TEXT, "s.yaml", "s").runs[0]
    observer = _Observer()
    outcome = run_one(run, None, observer, None)  # type: ignore[arg-type]
    assert outcome.status == "done"
    assert observer.told == [(2, 0), 0, 1]
    assert all(math.isnan(record.loss) for record in runner.history_of(None, outcome))


class _Deaf:
    def __getattr__(self, _: str):
        return lambda *_: None


class _Observer:
    def __init__(self) -> None:
        self.told: list[object] = []

    def started(self, total: int, first: int) -> None:
        self.told.append((total, first))

    def epoch(self, record) -> None:
        self.told.append(record.epoch)

    def finished(self, _: object) -> None:
        self.told.append("finished")
