"""A file that changes while a run reads it ends the run in one line, and no checkpoint is of what was read."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flax import nnx

from dorylax.errors import RunError
from dorylax.graph.dataset import Dataset
from dorylax.graph.mapped import map_file
from dorylax.store import metrics
from dorylax.store.checkpoint import Checkpoints
from dorylax.tasks import LinkPrediction
from dorylax.terminal.failures import explain


def _write(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"\x01")


def _diverge(path: Path) -> None:
    np.full(path.stat().st_size // 4, np.nan, np.float32).tofile(path)  # which empties it, and writes it again


def _restore_times(path: Path) -> None:
    times = path.stat()
    _write(path)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def _replace(path: Path) -> None:
    times = path.stat()
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    other.replace(path)


def _lengthen(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def _change_mode(path: Path) -> None:
    path.chmod(0o640)


def _link(path: Path) -> None:
    path.with_name("other-name").hardlink_to(path)


_ALONE = "only its permissions, owner or names, as by chmod or ln"
CHANGES: dict[Callable[[Path], None], str] = {
    _write: "it was written to",
    _diverge: "it was written to",
    _restore_times: _ALONE,
    _replace: "another file has its name now",
    _lengthen: "bytes then, ",
    _change_mode: _ALONE,
    _link: _ALONE,
}


@pytest.fixture
def file(data: Dataset, tmp_path: Path) -> Path:
    path = tmp_path / "features"
    np.asarray(data.features, np.float32).tofile(path)
    return path


@pytest.fixture
def mapped(data: Dataset, file: Path) -> Dataset:
    features = map_file(file, np.dtype(np.float32), data.features.shape)
    return dataclasses.replace(data, features=features)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_ends_the_run(
    trainer: Any, watcher: Any, mapped: Dataset, file: Path, change: Callable[[Path], None]
) -> None:
    run = file.parent / "run"

    def after(record: Any) -> None:
        if record.epoch == 1:
            change(file)

    options = {"data": mapped, "run_directory": run, "checkpoint_every": 1, "epochs": 6}
    with pytest.raises(RunError) as caught:
        trainer(observers=[watcher(after)], **options).fit()
    assert str(caught.value).startswith(f"{file} has changed since it was loaded (")
    assert CHANGES[change] in str(caught.value)
    assert "leave the file alone while it is used, and start again (a run: resume it)" in str(caught.value)
    explained = explain(caught.value)
    assert explained is not None
    assert explained.code == 1
    assert "\n" not in explained.line
    assert Checkpoints(run / "checkpoints").epochs()[-1] == 2
    assert len(metrics.read(run / "metrics.jsonl")) == 2


def test_the_data_of_other_tasks_are_compared_too(
    trainer: Any, watcher: Any, net: Any, mapped: Dataset, file: Path
) -> None:
    options = {"task": LinkPrediction(), "observers": [watcher(lambda _: _write(file))], "epochs": 2}
    run = trainer(model=net(16, rngs=nnx.Rngs(0)), data=mapped, **options)
    with pytest.raises(RunError, match="it was written to"):
        run.fit()


def test_nothing_is_predicted_of_changed_data(trainer: Any, mapped: Dataset, file: Path) -> None:
    trained = trainer(data=mapped, epochs=1)
    trained.fit()
    trained.predict()
    _lengthen(file)
    with pytest.raises(RunError, match="bytes then"):
        trained.predict()


def test_a_file_that_is_gone_changes_nothing(trainer: Any, watcher: Any, mapped: Dataset, file: Path) -> None:
    before = trainer(data=mapped, epochs=3).fit()
    after = trainer(data=mapped, epochs=3, observers=[watcher(lambda _: file.unlink(missing_ok=True))]).fit()
    assert [record.loss for record in before.history] == [record.loss for record in after.history]
