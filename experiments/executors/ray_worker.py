"""Node side of a sweep on Ray: the task that executes a run, and the actor that collects events.

A run writes to a temporary folder on its node. Only the sweep's process writes the sweep's folder, so nodes share no files.
If a process or node is lost, Ray restarts the task, which resumes from the actor's last snapshot.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import io
import os
import signal
import socket
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, final

from dorylax.errors import RunError
from dorylax.experiments.execution import RunObserver
from dorylax.experiments.runner import DataCache, RunOptions, directory, error_file, run_one
from dorylax.experiments.sweep import Run, RunOutcome
from dorylax.store.durable import is_temporary, remove_leftovers, temporary_folder
from dorylax.store.folder_lock import LOCK
from dorylax.version import __version__

FOLDERS = ("DORYLAX_DATA", "DORYLAX_CACHE")
"""Environment variables for folders whose paths may differ between nodes."""

_EPOCH_SECONDS = 0.25
_SNAPSHOT_SECONDS = 60.0
_CACHE = DataCache()
_Event: TypeAlias = tuple[str, str, tuple[Any, ...]]
Answer: TypeAlias = tuple[Literal["done", "failed", "open"], str | None, bytes | None]
"""Status of a run on a node, its traceback if it failed, and its packed directory if it has one."""


@final
@dataclasses.dataclass(frozen=True)
class Surroundings:
    """Requirements of runs on a node, except its CPUs.

    The paths of the `files` that configurations reference are relative to `home`, the sweep's working directory. The threads
    are those of XLA.
    """

    version: str
    home: str
    files: tuple[str, ...]
    environment: Mapping[str, str]
    threads: int

    def settle(self) -> None:
        """Prepare this process on a node for runs.

        Raises:
            RunError: The node has another version of dorylax, or lacks a file.
        """
        host = socket.gethostname()
        if self.version != __version__:
            raise RunError(
                f"node {host} has dorylax {__version__}, the sweep's process {self.version}: install the same"
            )
        missing = [file for file in self.files if not Path(self.home, file).exists()]
        if missing:
            raise RunError(
                f"node {host} has no {Path(self.home, missing[0])}, which the sweep names: put it there on every node, or "
                "work in a folder that they share"
            )
        if Path(self.home).is_dir():
            os.chdir(self.home)
            if self.files and self.home not in sys.path:
                sys.path.append(self.home)  # for imports of user modules
        for name, value in self.environment.items():
            if name not in FOLDERS or Path(value).is_dir():
                os.environ[name] = value
        os.environ["NPROC"] = str(self.threads)  # of XLA


@final
class Events:
    """Ray actor that queues the events of runs for the sweep's process and keeps the last snapshot of each run."""

    def __init__(self) -> None:
        self._said: list[_Event] = []
        self._some = asyncio.Event()
        self._attempts: dict[str, int] = {}
        self._snapshots: dict[str, bytes] = {}

    async def begin(self, key: str, node: str) -> tuple[int, bytes | None]:
        """Start an attempt at a run, and return its number and the last snapshot of earlier attempts."""
        number = self._attempts[key] = self._attempts.get(key, 0) + 1
        self._add((key, "begins", (number, node)))
        return number, self._snapshots.get(key)

    async def say(self, key: str, number: int, name: str, *arguments: Any) -> None:
        """Queue an event: a method of the watcher, or `saved` with a snapshot. Drops events of earlier attempts."""
        if number == self._attempts.get(key):
            if name == "saved":
                (self._snapshots[key],) = arguments
            self._add((key, name, arguments))

    async def take(self) -> list[_Event]:
        """Wait for events, and return all since the last call, in order."""
        await self._some.wait()
        self._some.clear()
        said, self._said = self._said, []
        return said

    def _add(self, event: _Event) -> None:
        self._said.append(event)
        self._some.set()


def run_here(run: Run, options: RunOptions, begun: bytes | None, surroundings: Surroundings, events: Any) -> Answer:
    """Start a run, or resume one from its packed directory, as a Ray task with a handle of the `Events` actor."""
    import ray

    surroundings.settle()
    node = node_name(socket.gethostname(), ray.get_runtime_context().get_node_id())
    number, snapshot = ray.get(events.begin.remote(run.key, node))
    with scratch_folder() as folder:
        path, error_path = directory(folder, run), error_file(folder, run)
        if (packed := snapshot or begun) is not None:
            unpack(packed, path)
        _CACHE.keep_only([run.config.data])
        outcome = RunOutcome(run, "open")
        # The trainer expects Python's handler of SIGINT, which Ray's parent process may ignore. Ray raises
        # KeyboardInterrupt in a cancelled task, but still accepts the task's result.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with contextlib.suppress(KeyboardInterrupt):
                outcome = run_one(run, folder, RunObserver(_sender(run, number, path, events)), _CACHE, options)
        finally:
            signal.signal(signal.SIGINT, before)
        error = error_path.read_text("utf-8") if outcome.error and error_path.is_file() else outcome.error
        return outcome.status, error, pack(path) if path.is_dir() else None


def node_name(host: str, node: str) -> str:
    """Return a node's display name, which is unique even for several nodes on one host."""
    return f"node {host} ({node[:8]})"


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a temporary folder and remove it at the end. First remove the leftovers of killed processes."""
    path = Path(tempfile.gettempdir()) / "run"
    remove_leftovers(path.parent, path.name.__eq__)
    with temporary_folder(path) as folder:
        yield folder


def pack(folder: Path) -> bytes:
    """Pack all files below a folder into a compressed tar archive, except locks and temporary files."""

    def kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        name = Path(entry.name).name
        return None if name == LOCK or is_temporary(name) else entry

    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz", compresslevel=1) as archive:
        archive.add(folder, arcname=".", filter=kept)
    return stream.getvalue()


def unpack(packed: bytes, folder: Path) -> None:
    """Extract an archive from `pack` into a folder. Never writes outside the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as archive:
        archive.extractall(folder, filter="data")


def _sender(run: Run, number: int, path: Path, events: Any) -> Callable[..., None]:
    """Return a function that sends an attempt's events, and a snapshot of the run's directory every minute."""
    told = sent = time.monotonic()

    def say(name: str, *arguments: Any) -> None:
        nonlocal told, sent
        now = time.monotonic()
        if name == "epoch" and now - sent >= _SNAPSHOT_SECONDS:  # the checkpoints of earlier epochs are complete now
            events.say.remote(run.key, number, "saved", pack(path))
            sent = time.monotonic()
        if name == "epoch" and now - told < _EPOCH_SECONDS:
            return
        told = now
        events.say.remote(run.key, number, name, *arguments)

    return say
