"""The trace that a run of a real pipeline leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.pipelines import messy_data, one_compilation, piped_trainer

from dorylax.pipeline.config import PipelineConfig
from dorylax.store.run_directory import RunDirectory
from dorylax.store.trace import read

DATA = messy_data(40, 160)
compilation = one_compilation(40, 40)


def fit(folder: Path, epochs: int, **options: Any) -> None:
    given: dict[str, Any] = {"servers": 2, "intervals": 3, "clock": "virtual", "edge_chunk": 40}
    piped_trainer(DATA, folder, epochs, PipelineConfig(**given | options), checkpoint_every=3).fit()


@pytest.mark.parametrize(
    "options",
    [{"mode": "pipe"}, {"mode": "async", "staleness": 2, "oscillation_limit": 1}],
    ids=lambda options: options["mode"],
)
def test_in_virtual_time_that_of_a_resumed_run_is_that_of_one_that_never_stopped(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    fit(tmp_path / "whole", 6, **options)
    for epochs in (3, 6):
        fit(tmp_path / "resumed", epochs, **options)
    whole, resumed = (tmp_path / name / "trace.json" for name in ("whole", "resumed"))
    assert resumed.read_bytes() == whole.read_bytes()
    epochs = {event["args"]["epoch"] for event in read(whole) if event["ph"] == "X"}
    assert epochs == set(range(-1, 6))


def test_what_is_traced_changes_nothing_of_what_is_trained(tmp_path: Path) -> None:
    for kind in ("sample", "off"):
        fit(tmp_path / kind, 2, mode="async", trace=kind)
    one, other = (RunDirectory.open(tmp_path / kind) for kind in ("sample", "off"))
    assert one.metrics_path.read_bytes() == other.metrics_path.read_bytes()
    assert (one.summary or {})["pipeline"] == (other.summary or {})["pipeline"]
    assert not other.trace_path.exists()
