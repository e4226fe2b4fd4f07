"""One run of a sweep: what does not fit in memory is not loaded, and the others go on."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.run_directories import begun

from dorylax.config import schema
from dorylax.experiments.runner import DataCache, clear_errors, directory, error_file, fail, inspect, run_one
from dorylax.experiments.sweep import RunOutcome
from dorylax.experiments.sweep_file import read
from dorylax.machine import Limit
from dorylax.runs.result import EpochRecord
from dorylax.store.metrics import MetricsWriter
from dorylax.store.run_directory import RunDirectory, RunDirectoryError
from dorylax.trainer.footprint import of_config


class Silent:
    """An observer that looks at nothing."""

    def started(self, *_: object) -> None: ...

    def epoch(self, *_: object) -> None: ...

    def finished(self, *_: object) -> None: ...


@pytest.mark.parametrize("section", [{"trace": "off"}, {}], ids=["off", "of before there was the key"])
def test_a_run_is_done_whatever_it_has_traced(tmp_path: Path, section: dict[str, str]) -> None:
    (run,) = read("base: {train.epochs: 1, pipeline.mode: pipe}\ngrid: {data.size: [tiny]}\n", "s.yaml", "s").runs
    config = run.config.to_dict()
    del config["pipeline"]["trace"]
    found = begun(directory(tmp_path, run), {**config, "pipeline": {**config["pipeline"], **section}})
    writer = MetricsWriter(found.metrics_path)
    writer.started(1, 0)
    writer.epoch(EpochRecord(0, 1.0, 0.5, 0.5, 0.5, 0.1))
    found.write_summary({"stopped": "epochs", "epochs": 1})
    assert inspect(tmp_path, run).status == "done"


def test_a_run_that_does_not_fit_fails_before_its_data_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "base: {train.epochs: 1, model.name: mlp}\ngrid: {data.size: [tiny, friendster]}\n"
    runs = {run.config.data.size: run for run in read(text, "s.yaml", "s").runs}
    monkeypatch.setattr(schema, "memory_limit", lambda: Limit(16 * 2**30, "machine"))  # streaming takes 22 GiB
    cache, checked = DataCache(), []
    check = of_config.check_config
    monkeypatch.setattr(of_config, "check_config", lambda config: (checked.append(config.data.size), check(config)))

    outcome = run_one(runs["friendster"], tmp_path, Silent(), cache)
    assert outcome.status == "failed"
    assert "does not fit: needs" in (outcome.error or "")
    assert "RunError" in error_file(tmp_path, runs["friendster"]).read_text("utf-8")
    assert not cache._loaded

    for _ in range(2):
        assert run_one(runs["tiny"], tmp_path, Silent(), cache).status == "done"
    assert checked == ["friendster", "tiny"], "what is loaded already is not counted again"


def test_a_run_that_cannot_be_read_after_it_is_done_says_why_where_errors_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run,) = read("base: {train.epochs: 1, model.name: mlp}\ngrid: {data.size: [tiny]}\n", "s.yaml", "s").runs

    def full(_: RunDirectory) -> None:
        raise RunDirectoryError("summary.json cannot be read: Too many open files", refused=True)

    with monkeypatch.context() as patch:
        patch.setattr(RunDirectory, "summary", property(full))
        outcome = run_one(run, tmp_path, Silent(), DataCache())
    assert (outcome.status, outcome.error) == ("failed", "summary.json cannot be read: Too many open files")
    assert error_file(tmp_path, run).read_text("utf-8") == outcome.error
    (done,) = [inspect(tmp_path, run)]
    assert done.status == "done"
    clear_errors(tmp_path, [done])
    assert not (tmp_path / "errors").exists()


def test_only_errors_of_runs_that_are_done_are_cleared(tmp_path: Path) -> None:
    first, second = read("grid: {data.size: [tiny, large]}\n", "s.yaml", "s").runs
    clear_errors(tmp_path, [])
    for run in (first, second):
        fail(tmp_path, run, "x")
    error_file(tmp_path, second).write_bytes(b"\xff")
    assert inspect(tmp_path, second).error == "\ufffd", "damage is no traceback"
    clear_errors(tmp_path, [RunOutcome(first, "done"), RunOutcome(second, "failed", error="x")])
    assert list((tmp_path / "errors").iterdir()) == [error_file(tmp_path, second)]
