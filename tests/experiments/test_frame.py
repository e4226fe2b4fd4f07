"""`dorylax.experiments.load`: sweeps as a frame. Runs are made without training, by formula."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support.run_directories import begun

from dorylax.config import ConfigError
from dorylax.config.schema import KEYS
from dorylax.experiments import load
from dorylax.experiments.folder import read_study, write_sweep
from dorylax.experiments.runner import directory, fail
from dorylax.experiments.sweep import Run
from dorylax.experiments.sweep_file import read
from dorylax.experiments.table import _KINDS, write_tables
from dorylax.runs.result import EpochRecord
from dorylax.settings.words import type_words
from dorylax.store.metrics import MetricsWriter

_ROOT = Path(__file__).parent.parent.parent
_PLAIN = """\
base: {data.size: tiny, train.epochs: 3, train.eval_every: 2}
grid: {model.name: [mlp, gcn]}
seeds: 2
"""
_PIPELINE = "{base: {data.size: tiny, train.epochs: 3, pipeline.clock: virtual}, grid: {model.name: [gcn]}, seeds: 1}"
_SECONDS = (0.5, 0.25, 0.125)
_TIMINGS = {"compile": 1.0, "train": 0.875, "evaluate": 0.5, "checkpoint": 0.0, "wall": 2.5}


def _records(run: Run, dollars: float | None) -> list[EpochRecord]:
    seed = run.config.train.seed
    return [
        EpochRecord(
            epoch,
            2.0 - epoch,
            *((None,) * 3 if epoch == 1 else (0.75, 0.5 + seed, None)),
            seconds,
            None if dollars is None else dollars * (epoch + 1),
        )
        for epoch, seconds in enumerate(_SECONDS)
    ]


def _leave(folder: Path, run: Run, dollars: float | None = None) -> None:
    """A run that is done."""
    found = begun(directory(folder, run), run.config.to_dict())
    MetricsWriter(found.metrics_path, _records(run, dollars)).started(3, 3)
    accuracies = {"val_accuracy": 0.5, "test_accuracy": None, "final_loss": 0.0}
    summary: dict[str, Any] = {"stopped": "epochs", "epochs": 3, "best_epoch": 0, "metric": "accuracy", **accuracies}
    found.write_summary({**summary, "seconds_per_epoch": 0.1875, "timings": _TIMINGS})


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """Four runs: two are done, one has failed, one is still to do."""
    folder = tmp_path / "plain"
    sweep = read(_PLAIN, "plain.yaml", "plain")
    folder.mkdir()
    write_sweep(folder, sweep, [])
    for run in sweep.runs[:2]:
        _leave(folder, run)
    fail(folder, sweep.runs[2], "Traceback\nRuntimeError: no")
    return folder


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    """One run, which is done and costs something."""
    folder = tmp_path / "pipeline"
    sweep = read(_PIPELINE, "pipeline.yaml", "a_pipeline")
    folder.mkdir()
    write_sweep(folder, sweep, [])
    _leave(folder, sweep.runs[0], dollars=0.5)
    return folder


def test_a_row_per_run_and_epoch(plain: Path) -> None:
    found = load(plain)
    runs = {outcome.run.key: outcome.run for outcome in read_study(plain).outcomes if outcome.status == "done"}
    assert list(found["run"]) == [key for key in sorted(runs) for _ in range(3)]
    assert list(found["epoch"]) == [0, 1, 2] * 2
    assert list(found["time"]) == [0.5, 0.75, 0.875] * 2
    assert list(found.index) == list(range(6))
    assert set(found["sweep"]) == {"plain"}
    for key, rows in found.groupby("run"):
        settings = runs[str(key)].config.dotted()
        for name, value in settings.items():
            assert all(rows[name].isna() if value is None else rows[name] == value), name
        records = _records(runs[str(key)], None)
        for name in ("epoch", "loss", "train_accuracy", "val_accuracy", "test_accuracy", "seconds", "dollars"):
            expected = [getattr(record, name) for record in records]
            assert [None if pd.isna(value) else value for value in rows[name]] == expected, name


def test_columns_in_order(plain: Path, pipeline: Path) -> None:
    for level in ("epochs", "runs"):
        columns = list(load(plain, pipeline, level=level))
        keys = [name for name in columns if "." in name]
        assert keys == [key for key in KEYS if key in keys]
        assert {"train.seed", "pipeline.mode", "single.optimize", "train.patience"} <= set(keys)
        assert columns[: 2 + len(keys)] == ["sweep", "run", *keys]
    assert not any(name.startswith("pipeline.") for name in load(plain))
    fields = list(EpochRecord.__dataclass_fields__)
    assert list(load(plain))[-1 - len(fields) : -1] == fields
    assert list(load(plain))[-1] == "time"


def test_several_sweeps_in_one(plain: Path, pipeline: Path) -> None:
    found = load(str(plain), pipeline, plain)
    assert list(found["sweep"]) == ["a_pipeline"] * 3 + ["plain"] * 6
    assert list(found["dollars"][:3]) == [0.5, 1.0, 1.5]
    assert found["dollars"][3:].isna().all()
    assert list(found["pipeline.clock"].isna()) == [False] * 3 + [True] * 6


def test_types_do_not_depend_on_missing_values(plain: Path, pipeline: Path) -> None:
    alone, both = load(pipeline), load(plain, pipeline)
    types = {
        "run": ("string", "string"),
        "epoch": ("int64", "int64"),
        "val_accuracy": ("float64", "float64"),
        "train.seed": ("int64", "int64"),
        "train.patience": ("Int64", "Int64"),
        "optimizer.learning_rate": ("float64", "float64"),
        "data.row_normalise": ("bool", "bool"),
        "model.name": ("string", "string"),
        "pipeline.servers": ("int64", "Int64"),
        "pipeline.interval_step_scaling": ("bool", "boolean"),
        "pipeline.mode": ("string", "string"),
    }
    assert {name: (alone[name].dtype.name, both[name].dtype.name) for name in types} == types
    runs = load(plain, level="runs")
    names = ("status", "epochs", "val_accuracy", "cpu_count", "wall_seconds")
    assert [runs[name].dtype.name for name in names] == ["string", "Int64", "float64", "Int64", "float64"]


def test_every_key_has_a_known_kind() -> None:
    texts = {type_words(field) for field in KEYS.values()} - _KINDS.keys()
    assert all(words == "text" or words.startswith("one of ") for words in texts)


def test_a_row_per_run_has_what_the_tables_have(plain: Path) -> None:
    outcomes = read_study(plain).outcomes
    write_tables(outcomes, plain)
    results, timings = (pd.read_csv(plain / name, dtype=str) for name in ("results.csv", "timings.csv"))
    found = load(plain, level="runs")
    assert list(found) == ["sweep", *results, *(name for name in timings if name != "run")]
    assert sorted(found["status"]) == ["done", "done", "failed", "open"]
    assert dict(zip(found["run"], found["status"], strict=True)) == {one.run.key: one.status for one in outcomes}
    for table in (results, timings):
        for name in table:
            for there, here in zip(table[name], found[name], strict=True):
                if pd.isna(there) or isinstance(here, str):
                    assert (pd.isna(there) and pd.isna(here)) or there == here, name
                else:
                    assert there == str(here).lower(), name


def test_nothing_is_done_yet(tmp_path: Path) -> None:
    write_sweep(tmp_path, read(_PLAIN, "plain.yaml", "plain"), [])
    epochs, runs = load(tmp_path), load(tmp_path, level="runs")
    assert (len(epochs), len(runs)) == (0, 4)
    assert epochs["epoch"].dtype == "int64"
    assert set(runs["status"]) == {"open"}
    assert runs["test_accuracy"].isna().all()


def test_errors(plain: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is not the folder of a sweep \(it has no sweep.json\)"):
        load(plain, tmp_path)
    with pytest.raises(ValueError, match="level must be one of epochs, runs, got 'epoch'"):
        load(plain, level="epoch")
    with pytest.raises(ValueError, match="at least one sweep"):
        load()


def test_importing_is_cheap() -> None:
    script = (
        "import sys, dorylax.experiments as e; print([n for n in ('pandas', 'jax') if n in sys.modules]); e.load\n"
        "print([n for n in ('pandas', 'jax') if n in sys.modules], hasattr(e, 'nothing'))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=_ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "[] False"]
