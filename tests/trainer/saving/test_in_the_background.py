"""Checkpoints that a thread writes while the next epochs run."""

from __future__ import annotations

import errno
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import processes

from dorylax.errors import RunError, RunWarning
from dorylax.store.checkpoint import MANIFEST, Checkpoints
from dorylax.store.folder_lock import LOCK
from dorylax.store.places import LocalStorage
from dorylax.trainer import Trainer

pytestmark = pytest.mark.timeout(120)

Make = Callable[..., Trainer]


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Manifests are written only after this event is set; 30 s at most."""
    opened, put = threading.Event(), LocalStorage.put

    def late(self: LocalStorage, name: str, content: Any) -> None:
        if name.endswith(MANIFEST):
            opened.wait(30)
        put(self, name, content)

    monkeypatch.setattr(LocalStorage, "put", late)
    return opened


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Fills the disk for checkpoints."""

    def refuse(self: LocalStorage, name: str, content: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", name)

    return lambda: monkeypatch.setattr(LocalStorage, "put", refuse)


def epochs(run: Path) -> list[int]:
    return Checkpoints(run / "checkpoints").epochs()


def test_epochs_run_while_a_checkpoint_of_earlier_ones_is_written(
    trainer: Make, tmp_path: Path, watcher: Any, gate: threading.Event, same: Any
) -> None:
    seen: dict[int, list[int]] = {}

    def after(record: Any) -> None:
        seen[record.epoch] = epochs(tmp_path / "run")
        if record.epoch == 3:
            gate.set()
        if record.epoch == 4:  # the checkpoint after 4 epochs has waited for the one after 2
            processes.until(lambda: epochs(tmp_path / "run") == [2, 4])
            shutil.copytree(tmp_path / "run", tmp_path / "killed")

    straight = trainer(epochs=6, run_directory=tmp_path / "run", checkpoint_every=2, observers=[watcher(after)]).fit()
    assert (seen[2], seen[3]) == ([], [])
    assert 2 in seen[4]
    found = Checkpoints(tmp_path / "run" / "checkpoints").restore()
    assert found is not None
    assert found.epochs == 6
    shutil.rmtree(tmp_path / "killed" / "checkpoints" / "epoch-00000004")
    resumed = trainer(epochs=6, run_directory=tmp_path / "killed", checkpoint_every=2, resume=True).fit()
    assert resumed.first_epoch == 2
    assert [record.loss for record in resumed.history] == [record.loss for record in straight.history]
    assert same(resumed.last_params, straight.last_params)


def test_the_next_save_reports_a_full_disk(
    trainer: Make, tmp_path: Path, watcher: Any, full: Callable[[], None]
) -> None:
    trainer(epochs=2, run_directory=tmp_path).fit()
    seen = watcher(lambda record: full() if record.epoch == 2 else None)
    with pytest.raises(RunError, match=r"after 3 epochs could not be written .*No space .*epoch-00000002$"):
        trainer(epochs=9, run_directory=tmp_path, checkpoint_every=3, resume=True, observers=[seen]).fit()
    assert seen.calls[-1] == 5
    assert epochs(tmp_path) == [2]


def test_the_end_reports_a_full_disk(trainer: Make, tmp_path: Path, watcher: Any, full: Callable[[], None]) -> None:
    trainer(epochs=2, run_directory=tmp_path).fit()
    seen = watcher(lambda record: full() if record.epoch == 2 else None)
    fitted = trainer(epochs=4, run_directory=tmp_path, checkpoint_every=3, resume=True, observers=[seen])
    with pytest.raises(RunError, match="after 3 epochs could not be written"):
        fitted.fit()
    assert not (tmp_path / "summary.json").exists()
    assert np.isfinite(fitted.predict("last")).all()  # nothing is lost in memory


def test_an_interrupted_run_waits_for_its_checkpoint(
    trainer: Make, tmp_path: Path, watcher: Any, gate: threading.Event
) -> None:
    def interrupt(record: Any) -> None:
        if record.epoch == 2:
            threading.Timer(0.3, gate.set).start()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trainer(epochs=9, run_directory=tmp_path, checkpoint_every=2, observers=[watcher(interrupt)]).fit()
    assert epochs(tmp_path) == [2]
    assert not (tmp_path / LOCK).exists()


def test_an_interrupted_run_warns_of_a_full_disk(
    trainer: Make, tmp_path: Path, watcher: Any, full: Callable[[], None]
) -> None:
    def interrupt(record: Any) -> None:
        full()
        if record.epoch == 2:
            raise KeyboardInterrupt

    with (
        pytest.raises(KeyboardInterrupt),
        pytest.warns(RunWarning, match="after 2 epochs could not be written .*There is no earlier one"),
    ):
        trainer(epochs=9, run_directory=tmp_path, checkpoint_every=2, observers=[watcher(interrupt)]).fit()
    assert epochs(tmp_path) == []
