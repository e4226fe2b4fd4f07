"""Files of a run for the trainer: checks of its directory, checkpoints, and the summary."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any, final

import numpy as np

from dorylax.config import RunConfig
from dorylax.environment import environment
from dorylax.errors import RunError, RunWarning
from dorylax.graph.data_shape import DataShape
from dorylax.graph.labels import Labels
from dorylax.memory.sources import shape_of
from dorylax.runs.result import TrainResult
from dorylax.store.arrays import Part, read_part, write_part
from dorylax.store.checkpoint import Arrays, Checkpoints
from dorylax.store.run_directory import RunDirectory, RunDirectoryError, UserCode, free_name
from dorylax.trainer.loop_state import LoopState, from_checkpoint, to_checkpoint
from dorylax.trainer.saving.places import Places, described


@final
class RunFiles:
    """The files of one run.

    Args:
        directory: The run's directory.
        run: Description of the run (`describe_run`), which is compared with those in checkpoints.
        checkpoints: The setting `train.checkpoints`.
        kept_as: As for `Places.of`.
        user_code: Files of the user's code that this process runs.
        keep: Number of checkpoints to keep.

    Raises:
        RunError: Checkpoints are in S3, and boto3 cannot be set up.
    """

    def __init__(
        self,
        directory: RunDirectory,
        run: Mapping[str, Any],
        *,
        checkpoints: str | None,
        kept_as: Path | None = None,
        user_code: UserCode = MappingProxyType({}),
        keep: int = 2,
    ) -> None:
        self.directory, self._run, self._user_code = directory, run, user_code
        self._places = Places.of(directory, checkpoints, kept_as)
        self._stores = [Checkpoints(place, keep=keep) for place in (self._places.place, *self._places.former)]
        self._checkpoints = self._stores[0]
        self._owner: bytes | None = None
        self._saved: int | None = None
        self._to_move = False
        self._thread: ThreadPoolExecutor | None = None
        self._pending: Future[None] | None = None

    def check(self, *, resume: bool) -> None:
        """Check, without changing anything, that the run may train here; `start` writes the first files.

        Args:
            resume: Whether the directory may hold epochs.

        Raises:
            RunDirectoryError: The directory holds epochs and `resume` is False; or the former place of the checkpoints is
                empty, so that the run would silently begin again; or the folder of checkpoints is a symbolic link.
            OSError: The place of the checkpoints cannot be listed.
            RunError: S3 refuses the request.
        """
        path, noted = self.directory.path, self._places.noted
        if self.directory.checkpoints_path.is_symlink():
            raise RunDirectoryError(
                f"{self.directory.checkpoints_path} is a symbolic link, which may lead to the checkpoints of another run: "
                "remove that link, and use train.checkpoints to keep checkpoints elsewhere"
            )
        epochs = self._checkpoints.epochs()  # always listed, so that an unusable place raises now
        if resume:
            if noted is None or any(store.epochs() for store in self._stores) or Checkpoints(noted).owner() is not None:
                return
            raise RunDirectoryError(
                f"the checkpoints of {path} are gone: there is nothing in {noted}, where they went. Bring them back, or "
                "choose another run directory to start again"
            )
        if self.directory.metrics_path.exists() or any(store.epochs() for store in self._stores[1:]):
            raise RunDirectoryError(
                f"{path} already holds epochs of this run: continue it (resume=True, --resume), or choose another run "
                f"directory, such as {free_name(path)}"
            )
        if epochs:
            raise RunDirectoryError(
                f"{self._checkpoints} already holds checkpoints of a run in {path}: continue it (resume), or delete them, "
                "or choose another run directory or train.checkpoints"
            )

    def start(self, config: Mapping[str, Any], loop: LoopState) -> None:
        """Make the directory and write the files that describe the run; see `RunDirectory.write_start`.

        Args:
            config: Content of config.yaml.
            loop: Initial state of the run. If its checkpoint is in a former place, it moves first.

        Raises:
            RunError: The checkpoint could not be moved.
            OSError: The place of the checkpoints cannot be written.
        """
        self.directory.remove_outdated_summary(config)
        if not self._places.inside:
            owner = self._places.owner()
            self._checkpoints.own(owner)
            self._owner = owner
        self._checkpoints.clear_unfinished()
        if self._to_move:
            self.save(loop)
            if loop.carried is not None and loop.carried.parts:
                there = self._checkpoints.restore(parts=False)
                assert there is not None
                loop.carried = dataclasses.replace(loop.carried, parts=there.parts)
            for place, former in zip(self._places.former, self._stores[1:], strict=True):
                inside = place == str(self.directory.checkpoints_path.absolute())
                if inside or self._places.is_owner(former.owner()):
                    former.remove_all()
        self.directory.write_start(config, environment(self._user_code, self._places.note()))

    def restore(self, fresh: LoopState, *, to_predict: bool = False, parts: bool = False) -> LoopState | None:
        """Return the state in the newest whole checkpoint, or None if there is no checkpoint.

        Args:
            fresh: A state of this run that gives the structure.
            to_predict: See `from_checkpoint`.
            parts: See `Checkpoints.restore`.

        Warns:
            UserWarning: One of the user's source files has changed since the run last ran it.

        Raises:
            RunError: No checkpoint can be read.
            InputError: The newest belongs to another run.
        """
        store = self.newest
        checkpoint = store.restore(parts=parts)
        if checkpoint is None:
            return None
        self._to_move = store is not self._checkpoints
        self._saved = None if self._to_move else checkpoint.epochs
        for place, then in self.directory.user_code.items():
            now = self._user_code.get(place)
            if now is not None and now["sha256"] != then["sha256"]:
                warnings.warn(
                    f"{now['file']} is not what {self.directory.path} was trained with: its SHA-256 was {then['sha256']!r} "
                    f"and is {now['sha256']!r}",
                    UserWarning,
                    stacklevel=2,
                )
        return from_checkpoint(checkpoint, fresh, self._run, to_predict=to_predict)

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """Save in a thread while the context lasts; its end waits for the last checkpoint.

        Warns:
            RunWarning: The last checkpoint could not be written, and the context ends with another error.

        Raises:
            RunError: The last checkpoint could not be written.
        """
        with ThreadPoolExecutor(1, "dorylax-checkpoint") as thread:
            self._thread = thread
            try:
                yield
            except BaseException:
                try:
                    self._settle()
                except Exception as error:
                    warnings.warn(str(error), RunWarning, stacklevel=2)
                raise
            finally:
                self._thread = None
            self._settle()

    def save(self, loop: LoopState, *, wait: bool = True) -> None:
        """Save a checkpoint of the state, unless the newest one already holds it.

        Args:
            loop: The state.
            wait: Whether to block until the checkpoint is on disk. Otherwise a thread writes copies of the arrays while
                `saving` lasts and no other process holds arrays. The next call and the end of `saving` wait for it.

        Raises:
            RunError: This checkpoint, or the one before, could not be written.
        """
        begin = time.perf_counter()
        self._settle()
        # A diverged state is one step past its last whole epoch, whose own checkpoint must stay.
        number = loop.epochs + 1 if loop.diverged else loop.epochs
        if self._saved == number:
            return
        arrays, record = to_checkpoint(loop, self._run)
        parts: Any = None if loop.carried is None else loop.carried.parts
        if isinstance(parts, Mapping):
            parts = functools.partial(_copy, parts) if parts else None
        if wait or parts is not None or self._thread is None:
            self._write(number, arrays, record, parts)
        else:
            # The next epoch donates the buffers of arrays on the device, and changes those of servers.
            kept = {group: {name: np.array(array) for name, array in of.items()} for group, of in arrays.items()}
            self._pending = self._thread.submit(self._write, number, kept, record)
        self._saved = number
        loop.spend("checkpoint", time.perf_counter() - begin)

    def _write(self, number: int, arrays: Arrays, record: Mapping[str, Any], parts: Any = None) -> None:
        """Save a checkpoint, unless another process, such as the same run on another machine, has taken over the place."""
        if self._owner is not None:
            try:
                owner = self._checkpoints.owner()
                if owner is None:
                    self._checkpoints.own(self._owner)
            except (OSError, RunError) as error:
                raise RunError(f"no checkpoint could be written to {self._checkpoints}: {error}") from error
            if owner is not None and owner != self._owner:
                raise RunError(
                    f"{self._checkpoints} belongs to {described(owner)} now, which has begun after this one: nothing was "
                    "written there"
                )
        self._checkpoints.save(number, arrays, record, parts)

    def _settle(self) -> None:
        """Wait for the thread; raise RunError if it failed."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    @property
    def newest(self) -> Checkpoints:
        """The place with the newest checkpoint; the present place if several have one of the same epoch."""
        return min(self._stores, key=lambda store: -max(store.epochs(), default=-1))

    def summarise(self, result: TrainResult, seed: int) -> None:
        """Write summary.json; docs/run-directory.md documents its fields."""
        pipeline = result.pipeline
        if pipeline is None:
            # With no epoch trained now, an old version's checkpoint lacks this report; the summary has it.
            with contextlib.suppress(RunDirectoryError):
                pipeline = (self.directory.summary or {}).get("pipeline")
        first = {"stopped": result.stopped, "seed": seed}
        self.directory.write_summary(first | result.summary() | {"pipeline": pipeline})


def _copy(parts: Mapping[str, Part], place: str) -> dict[str, Part]:
    """Copy the parts of another checkpoint into the folder of a new one."""
    return {name: write_part(place, name, read_part(part)) for name, part in parts.items()}


def trained_labels(path: Path, config: RunConfig) -> Labels | None:
    """Labels that a run was trained on, as its newest checkpoint describes them, with an empty array.

    Checkpoints of earlier versions leave out the kind of the labels. The run's summary or its data tell it then.

    Args:
        path: Run directory.
        config: The run's configuration, with its own data.

    Returns:
        The labels; None where there is no checkpoint.

    Raises:
        RunError: None of the checkpoints can be read.
    """
    directory = RunDirectory.open(path)
    checkpoint = RunFiles(directory, {}, checkpoints=config.train.checkpoints).newest.restore(parts=False)
    if checkpoint is None:
        return None
    data = checkpoint.record["run"]["data"]
    if not data.keys() & {"multilabel", "targets"}:
        summary = directory.summary or {}
        shape: DataShape | None = None
        with contextlib.suppress(ValueError, OSError):
            shape = shape_of(config.data)
        if config.train.metric is None and summary.get("metric") == "micro_f1":
            data = {**data, "multilabel": True}
        elif shape is not None and (shape.num_vertices, shape.num_classes) == (data["vertices"], data["classes"]):
            data = {**data, "multilabel": shape.multilabel, **({"targets": shape.targets[0]} if shape.targets else {})}
    row = (data["targets"],) if "targets" in data else ()
    names = np.array(data["class_names"]) if "class_names" in data else None
    return Labels(np.zeros((0, *row), np.float32), data["classes"], data.get("multilabel", False), names)
