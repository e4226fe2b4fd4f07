"""One run of a sweep: what does not fit in memory is not loaded, and the others go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from dorylax.experiments.runner import DataCache, error_file, run_one
from dorylax.experiments.sweep_file import read
from dorylax.memory_limit import Limit
from dorylax.trainer.footprint import of_config


class Silent:
    """An observer that looks at nothing."""

    def started(self, *_: object) -> None: ...

    def epoch(self, *_: object) -> None: ...

    def finished(self, *_: object) -> None: ...


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
