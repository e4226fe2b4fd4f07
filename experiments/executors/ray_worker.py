"""The part of a sweep on Ray that runs on the nodes: the task that runs a run, and the actor that collects its events.

A run writes into a temporary folder of its node. Only the sweep's process writes the sweep's folder, so nodes need no shared
files. If a process or node is lost, Ray starts the task again; it continues from the last snapshot that the actor holds.
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
from typing import Any, Literal, NamedTuple, TypeAlias, final

from dorylax.errors import RunError
from dorylax.experiments.executors.base import RunObserver
from dorylax.experiments.runner import DataCache, RunOptions, directory, error_file, run_one
from dorylax.experiments.sweep import Run
from dorylax.store.durable import is_temporary, remove_leftovers, temporary_folder
from dorylax.store.folder_lock import LOCK
from dorylax.version import __version__

FOLDERS = ("DORYLAX_DATA", "DORYLAX_CACHE")
"""Variables that name folders, which a node may have elsewhere."""

_EPOCH_SECONDS = 0.25
_SNAPSHOT_SECONDS = 60.0
_CACHE = DataCache()
_Event: TypeAlias = tuple[str, str, tuple[Any, ...]]


@final
@dataclasses.dataclass(frozen=True)
class Surroundings:
    """What runs need of a node besides its CPUs.

    Attributes:
        version: Version of dorylax.
        home: Folder in which the sweep was started; relative paths start there.
        files: Files that configurations name.
        environment: Variables for the runs.
        threads: Threads of XLA.
    """

    version: str
    home: str
    files: tuple[str, ...]
    environment: Mapping[str, str]
    threads: int

    def settle(self) -> None:
        """Prepare this process of a node for runs.

        Raises:
            RunError: The node lacks something.
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
                sys.path.append(self.home)  # for imports of the user's own files
        for name, value in self.environment.items():
            if name not in FOLDERS or Path(value).is_dir():
                os.environ[name] = value
        os.environ["NPROC"] = str(self.threads)  # of XLA


class Answer(NamedTuple):
    """The result of a run on a node: its status, its traceback if it failed, and its packed directory if it has one."""

    status: Literal["done", "failed", "open"]
    error: str | None
    directory: bytes | None


@final
class Events:
    """The actor that holds the events of runs until the sweep's process takes them, and their last snapshots."""

    def __init__(self) -> None:
        self._said: list[_Event] = []
        self._some = asyncio.Event()
        self._attempts: dict[str, int] = {}
        self._snapshots: dict[str, bytes] = {}

    async def begin(self, key: str, node: str) -> tuple[int, bytes | None]:
        """Begin an attempt at a run; return its number, and the last snapshot of the attempts before."""
        number = self._attempts[key] = self._attempts.get(key, 0) + 1
        self._add((key, "begins", (number, node)))
        return number, self._snapshots.get(key)

    async def say(self, key: str, number: int, name: str, *arguments: Any) -> None:
        """Add an event: a method of the watcher, or `saved` with a snapshot. Events of earlier attempts are dropped."""
        if number == self._attempts.get(key):
            if name == "saved":
                (self._snapshots[key],) = arguments
            self._add((key, name, arguments))

    async def take(self) -> list[_Event]:
        """Wait for events; return those since the last call, in order."""
        await self._some.wait()
        self._some.clear()
        said, self._said = self._said, []
        return said

    def _add(self, event: _Event) -> None:
        self._said.append(event)
        self._some.set()


def run_here(run: Run, options: RunOptions, begun: bytes | None, surroundings: Surroundings, events: Any) -> Answer:
    """The task: run or resume a run.

    Args:
        run: The run.
        options: As for `run_one`.
        begun: Packed directory of a run that has begun.
        surroundings: Needs of the run.
        events: Handle of the `Events` actor.

    Raises:
        RunError: The node is not set up for it.
    """
    import ray

    surroundings.settle()
    node = node_name(socket.gethostname(), ray.get_runtime_context().get_node_id())
    number, snapshot = ray.get(events.begin.remote(run.key, node))
    with scratch_folder() as folder:
        path, error_path = directory(folder, run), error_file(folder, run)
        if (packed := snapshot or begun) is not None:
            unpack(packed, path)
        _CACHE.keep_only([run.config.data])
        answer = Answer("open", None, None)
        # Ray raises it in a cancelled task, and still takes the task's result.
        with contextlib.suppress(KeyboardInterrupt), _interrupts_heard():
            outcome = run_one(run, folder, RunObserver(_sender(run, number, path, events)), _CACHE, options)
            answer = Answer(outcome.status, outcome.error, None)
        if answer.status == "failed" and error_path.is_file():
            answer = answer._replace(error=error_path.read_text("utf-8"))
        return answer._replace(directory=pack(path) if path.is_dir() else None)


def node_name(host: str, node: str) -> str:
    """A node's name; several nodes may be on one host."""
    return f"node {host} ({node[:8]})"


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a temporary folder, after removal of those of killed processes; remove it at the end.

    Raises:
        OSError: The file system refuses.
    """
    path = Path(tempfile.gettempdir()) / "run"
    remove_leftovers(path.parent, path.name.__eq__)
    with temporary_folder(path) as folder:
        yield folder


def pack(folder: Path) -> bytes:
    """All files below a folder as a tar archive, without locks and unfinished files.

    Raises:
        OSError: The file system refuses.
    """

    def kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        path = Path(entry.name)
        return None if path.name == LOCK or is_temporary(path.name) else entry

    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz", compresslevel=1) as archive:
        archive.add(folder, arcname=".", filter=kept)
    return stream.getvalue()


def unpack(packed: bytes, folder: Path) -> None:
    """Write the files of `pack` into a folder, and none outside of it.

    Raises:
        OSError: The file system refuses.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as archive:
        archive.extractall(folder, filter="data")


@contextlib.contextmanager
def _interrupts_heard() -> Iterator[None]:
    """Handle SIGINT as Python does by default, which the trainer expects; Ray's parent may ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _sender(run: Run, number: int, path: Path, events: Any) -> Callable[..., None]:
    """A function that sends events of an attempt, and a snapshot of the run's directory every minute."""
    told = sent = time.monotonic()

    def say(name: str, *arguments: Any) -> None:
        nonlocal told, sent
        now = time.monotonic()
        if name == "epoch" and now - sent >= _SNAPSHOT_SECONDS:  # checkpoints of earlier epochs are complete
            events.say.remote(run.key, number, "saved", pack(path))
            sent = time.monotonic()
        if name == "epoch" and now - told < _EPOCH_SECONDS:
            return
        told = now
        events.say.remote(run.key, number, name, *arguments)

    return say
