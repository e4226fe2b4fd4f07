"""One run of a sweep: what does not fit in memory is not loaded, and the others go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from dorylax.experiments.runner import DataCache, directory, error_file, inspect, run_one
from dorylax.experiments.sweep_file import read
from dorylax.machine import Limit
from dorylax.runs.directory import RunDirectory
from dorylax.runs.metrics import MetricsWriter
from dorylax.runs.result import EpochRecord
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
    found = RunDirectory.create(directory(tmp_path, run), {**config, "pipeline": {**config["pipeline"], **section}})
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
    monkeypatch.setattr(of_config, "memory_limit", lambda: Limit(24 * 2**30, "machine"))
    cache, checked = DataCache(), []
    check = of_config.check_config
    monkeypatch.setattr(of_config, "check_config", lambda config: (checked.append(config.data.size), check(config)))

    outcome = run_one(runs["friendster"], tmp_path, Silent(), cache)
    assert outcome.status == "failed"
    assert "does not fit: needs" in (outcome.error or "")
    assert "MemoryLimitError" in error_file(tmp_path, runs["friendster"]).read_text("utf-8")
    assert not cache._loaded

    for _ in range(2):
        assert run_one(runs["tiny"], tmp_path, Silent(), cache).status == "done"
    assert checked == ["friendster", "tiny"], "what is loaded already is not counted again"
