"""A run's directory as the trainer uses it: opened under rules, restored from, saved to, summarised."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, final

from dorylax.runs.checkpoint import Checkpoints
from dorylax.runs.directory import RunDirectory, RunDirectoryError
from dorylax.runs.result import TrainResult
from dorylax.trainer.loop_state import LoopState
from dorylax.trainer.saving.content import from_checkpoint, to_checkpoint


@final
class RunFiles:
    """The files of one run.

    Args:
        directory: the run's directory.
        run: what the run is (`describe_run`), to be compared with checkpoints.
        keep: how many checkpoints stay.
    """

    def __init__(self, directory: RunDirectory, run: Mapping[str, Any], *, keep: int = 2) -> None:
        self.directory = directory
        self._run = run
        self._checkpoints = Checkpoints(directory.checkpoints_path, keep=keep)
        self._saved: int | None = None

    @classmethod
    def create(
        cls,
        path: Path,
        config: Mapping[str, Any],
        run: Mapping[str, Any],
        *,
        free: Collection[str],
        keep: int,
        resume: bool,
    ) -> RunFiles:
        """Checks that the run may use the directory; nothing is written before `start`.

        Args:
            path: the directory.
            config: for config.yaml.
            run: as for `RunFiles`.
            free: dotted keys in which the configuration that is there may differ.
            keep: as for `RunFiles`.
            resume: whether the directory may hold epochs.

        Raises:
            RunDirectoryError: as `RunDirectory.claim`; or it already holds epochs, and `resume` is False.
        """
        directory = RunDirectory.claim(path, config, free=free, resume=resume)
        files = cls(directory, run, keep=keep)
        if not resume and (directory.metrics_path.exists() or files._checkpoints.epochs()):
            raise RunDirectoryError(
                f"{path} already holds epochs of this run: continue it (resume), or choose another run directory"
            )
        return files

    def start(self, config: Mapping[str, Any]) -> None:
        """Makes the directory and writes what describes the run; see `RunDirectory.write_start`."""
        self.directory.write_start(config)

    def restore(self, fresh: LoopState, *, to_predict: bool = False) -> LoopState | None:
        """The state in the newest whole checkpoint; None where there is no checkpoint.

        Args:
            fresh: a state of this run, for structure.
            to_predict: see `from_checkpoint`.

        Raises:
            CheckpointError: none can be read, or it belongs to another run.
        """
        checkpoint = self._checkpoints.restore()
        if checkpoint is None:
            return None
        self._saved = checkpoint.epochs
        return from_checkpoint(checkpoint, fresh, self._run, to_predict=to_predict)

    def save(self, loop: LoopState) -> None:
        """Saves a checkpoint of the state, unless the newest one is of it already.

        Raises:
            CheckpointError: it could not be written.
        """
        # A diverged state is one step past its last whole epoch, whose own checkpoint must stay.
        number = loop.epochs + 1 if loop.diverged else loop.epochs
        if self._saved == number:
            return
        begin = time.perf_counter()
        arrays, record = to_checkpoint(loop, self._run)
        self._checkpoints.save(number, arrays, record)
        self._saved = number
        loop.spend("checkpoint", time.perf_counter() - begin)

    def summarise(self, result: TrainResult, seed: int) -> None:
        """Writes summary.json; docs/run-directory.md documents its fields."""
        pipeline = result.pipeline
        if pipeline is None:
            # Perhaps nothing was trained now, and the checkpoint is of a version that left this to the summary alone.
            with contextlib.suppress(RunDirectoryError):
                pipeline = (self.directory.summary or {}).get("pipeline")
        first = {"stopped": result.stopped, "seed": seed}
        self.directory.write_summary(first | result.summary() | {"pipeline": pipeline})
