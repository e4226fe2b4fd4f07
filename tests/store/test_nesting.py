"""Lists in lists without end, in each file of a run: readers of JSON and YAML then give up in a way of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dorylax.errors import DorylaxError, RunError, RunWarning
from dorylax.experiments.folder import read_study
from dorylax.store import metrics, servers, trace
from dorylax.store.checkpoint import Checkpoints
from dorylax.store.run_directory import RunDirectory

READERS: dict[str, Callable[[Path], object]] = {
    "config.yaml": lambda folder: RunDirectory(folder).config,
    "environment.json": lambda folder: RunDirectory(folder).environment,
    "summary.json": lambda folder: RunDirectory(folder).summary,
    "metrics.jsonl": lambda folder: metrics.read(folder / "metrics.jsonl"),
    "trace.json": lambda folder: list(trace.read(folder / "trace.json")),
    "servers.jsonl": lambda folder: servers.read(folder / "servers.jsonl"),
    "sweep.json": read_study,
}
ENDLESS = "[" * 100_000 + "\n"


@pytest.mark.parametrize("name", READERS)
def test_it_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(ENDLESS)
    with pytest.raises(DorylaxError, match=name):
        READERS[name](tmp_path)


def test_a_checkpoint_is_damaged(tmp_path: Path) -> None:
    path = Checkpoints(tmp_path).save(1, {"params": {"w": np.zeros(3)}}, {})
    (path / "manifest.json").write_text(ENDLESS)
    with (
        pytest.warns(RunWarning, match="recursion"),
        pytest.raises(RunError, match="every checkpoint in"),
    ):
        Checkpoints(tmp_path).restore()
