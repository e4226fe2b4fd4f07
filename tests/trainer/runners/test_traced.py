"""The trace that a run of a real pipeline leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.pipelines import messy_data, one_compilation, piped_trainer

from dorylax.pipeline.config import PipelineConfig
from dorylax.store.run_directory import RunDirectory

DATA = messy_data(40, 160)
compilation = one_compilation(40, 40)


def fit(folder: Path, epochs: int, **options: Any) -> None:
    given: dict[str, Any] = {"servers": 2, "intervals": 3, "clock": "virtual", "edge_chunk": 40}
    piped_trainer(DATA, folder, epochs, PipelineConfig(**given | options), checkpoint_every=3).fit()


def test_what_is_traced_changes_nothing_of_what_is_trained(tmp_path: Path) -> None:
    for kind in ("sample", "off"):
        fit(tmp_path / kind, 2, mode="async", trace=kind)
    one, other = (RunDirectory.open(tmp_path / kind) for kind in ("sample", "off"))
    assert one.metrics_path.read_bytes() == other.metrics_path.read_bytes()
    assert (one.summary or {})["pipeline"] == (other.summary or {})["pipeline"]
    assert not other.trace_path.exists()
