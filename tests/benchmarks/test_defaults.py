"""The table of defaults, whose runs are made by a pool of processes."""

from __future__ import annotations

import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dorylax.config import RunConfig

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from defaults import Runs, choose, show


def test_a_pool_makes_all_runs_of_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = []

    def run(_: Runs, config: RunConfig, data: object) -> dict[str, Any]:
        assert threading.current_thread() is not threading.main_thread()
        made.append(config.key())
        good = 0.5 + 0.1 * (config.model.norm == "layer") + 0.002 * (config.train.seed % 1000)
        return {"reached": {"1": {"epoch": 0, "val": good, "test": good}}, "epochs": 1}

    monkeypatch.setattr(Runs, "_run", run)
    runs = pickle.loads(pickle.dumps(Runs(tmp_path, "gcn", 1, 60)))  # as processes get it
    with ThreadPoolExecutor(1) as pool:
        show(runs, ["homophilous", "dense"], 3, pool)
        assert len(made) == 2 * (8 * 2 + 3 + 3)
        choose(runs, ["sparse"], 2, pool)
        assert len(made) == 2 * (8 * 2 + 3 + 3) + 9 * 2
    printed = capsys.readouterr().out
    assert printed.count("default 50.2 ± 0.2 (3 seeds)  tuned 60.2 ± 0.2 (3 seeds; raw, dropout 0.2, norm layer)") == 2
    assert "raw 64 layer         validation after 100: 60.1 ± 0.1" in printed
