"""What runs on the nodes: a run of a sweep as a task of Ray, and the actor that passes on what runs tell.

A run writes into a temporary folder of its node, whose content goes back to the sweep's process, alone in writing the
sweep's folder. So nodes need share no files; and a node that was given up for lost, and is not, can harm nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, final

from dorylax.errors import DorylaxError
from dorylax.experiments.executors.parcel import pack, unpack
from dorylax.experiments.executors.scratch import scratch_folder
from dorylax.experiments.runner import DataCache, RunOptions, directory, error_file, run_one
from dorylax.experiments.sweep import Run
from dorylax.version import __version__

if TYPE_CHECKING:
    from dorylax.runs.result import EpochRecord, TrainResult

FOLDERS = ("DORYLAX_DATA", "DORYLAX_CACHE")
"""Of the environment: folders, which a node may have elsewhere."""

Status: TypeAlias = Literal["done", "failed", "open"]

_ALIVE_SECONDS = 5.0
_EPOCH_SECONDS = 0.25
_SNAPSHOT_SECONDS = 60.0
_CACHE = DataCache()


class NodeError(DorylaxError, RuntimeError):
    """A node is not set up for the sweep."""


@final
@dataclasses.dataclass(frozen=True)
class Surroundings:
    """What runs need of a node besides its CPUs.

    Attributes:
        version: of dorylax.
        home: the folder in which the sweep was started; relative paths are from there.
        files: that configurations name.
        environment: variables that runs see.
        threads: that XLA may use.
    """

    version: str
    home: str
    files: tuple[str, ...]
    environment: Mapping[str, str]
    threads: int

    def settle(self) -> None:
        """Makes this process, of a node, one in which runs run.

        Raises:
            NodeError: something is missing here.
        """
        host = socket.gethostname()
        if self.version != __version__:
            raise NodeError(
                f"node {host} has dorylax {__version__}, the sweep's process {self.version}: install the same"
            )
        missing = [file for file in self.files if not Path(self.home, file).exists()]
        if missing:
            raise NodeError(
                f"node {host} has no {Path(self.home, missing[0])}, which the sweep names: put it there on every node, or "
                "work in a folder that they share"
            )
        if Path(self.home).is_dir():
            os.chdir(self.home)
            if self.files and self.home not in sys.path:
                sys.path.append(self.home)  # for what the user's own files import
        for name, value in self.environment.items():
            if name not in FOLDERS or Path(value).is_dir():
                os.environ[name] = value
        os.environ["NPROC"] = str(self.threads)  # of XLA


@final
@dataclasses.dataclass(frozen=True)
class Asked:
    """A run, to be run on a node.

    Attributes:
        attempt: which try of which run it is.
        run: it.
        options: what holds for all runs.
        begun: the directory of a run that was begun.
        surroundings: what it needs.
    """

    attempt: str
    run: Run
    options: RunOptions
    begun: bytes | None
    surroundings: Surroundings


@final
@dataclasses.dataclass(frozen=True)
class Answer:
    """What has become of a run on a node.

    Attributes:
        status: as of `RunOutcome`.
        error: the traceback of one that failed.
        directory: of the run; None where it has none.
    """

    status: Status
    error: str | None
    directory: bytes | None


@final
class NodeProcess(NamedTuple):
    """A process of a node.

    Attributes:
        node: Ray's id of the node, in hexadecimal digits.
        host: its host's name.
        number: of the process there.
        started: when it was started, in ticks since the host was, which tells it from a later process of its number.
    """

    node: str
    host: str
    number: int
    started: int

    @classmethod
    def this(cls, node: str) -> NodeProcess:
        """This process, on a node."""
        return cls(node, socket.gethostname(), os.getpid(), _stat(os.getpid())[0])

    def cpu_seconds(self) -> float | None:
        """That it has used so far, asked on its node; None where it is gone."""
        try:
            started, used = _stat(self.number)
        except OSError:
            return None
        return used if started == self.started else None

    def kill(self) -> None:
        """Kills it, on its node."""
        with contextlib.suppress(OSError):
            if _stat(self.number)[0] == self.started:
                os.kill(self.number, signal.SIGKILL)


def _stat(process: int) -> tuple[int, float]:
    """When a process was started, in ticks, and the seconds of CPU time that it has used; 0 where the system is not Linux.

    Raises:
        OSError: there is none.
    """
    if sys.platform != "linux":
        return 0, time.monotonic()
    # After the name, which may hold spaces and brackets, from the 3rd field on: the 14th and 15th are times, the 22nd the
    # start (proc_pid_stat(5)).
    fields = Path(f"/proc/{process}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    return int(fields[19]), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@final
class News:
    """The actor that holds what runs tell until it is taken."""

    def __init__(self) -> None:
        self._said: list[tuple[str, str, tuple[Any, ...]]] = []
        self._some = asyncio.Event()

    async def say(self, attempt: str, name: str, *arguments: Any) -> None:
        """Of an attempt: a method of the watcher, `alive`, `saved`, or `ends` before it answers."""
        self._said.append((attempt, name, arguments))
        self._some.set()

    async def take(self) -> list[tuple[str, str, tuple[Any, ...]]]:
        """What was said since it was last taken, in order; once there is something."""
        await self._some.wait()
        self._some.clear()
        said, self._said = self._said, []
        return said


def look_around(surroundings: Surroundings) -> None:
    """A task that checks its node before runs do.

    Raises:
        NodeError: something is missing there.
    """
    surroundings.settle()


def run_here(asked: Asked, news: Any) -> Answer:
    """A task: runs, or goes on with, a run.

    Raises:
        NodeError: the node is not set up for it.
    """
    import ray

    asked.surroundings.settle()
    run = asked.run
    with scratch_folder() as folder:
        path, error_path = directory(folder, run), error_file(folder, run)
        if asked.begun is not None:
            unpack(asked.begun, path)
        teller = _Teller(asked.attempt, path, news)
        teller.say("begins", NodeProcess.this(ray.get_runtime_context().get_node_id()))
        with _signs_of_life(teller):
            _CACHE.keep_only([run.config.data])
            status: Status = "open"
            error: str | None = None
            # Ray raises it in a task that is cancelled, and takes what the task returns nevertheless.
            with contextlib.suppress(KeyboardInterrupt), _interrupts_heard():
                outcome = run_one(run, folder, teller, _CACHE, asked.options)
                status, error = outcome.status, outcome.error
            if status == "failed" and error_path.is_file():
                error = error_path.read_text("utf-8")
            answer = Answer(status, error, pack(path) if path.is_dir() else None)
        teller.say("ends")
        return answer


@contextlib.contextmanager
def _signs_of_life(teller: _Teller) -> Iterator[None]:
    """Says from time to time that this process is not stopped, whatever its run does."""
    over = threading.Event()

    def say() -> None:
        while not over.wait(_ALIVE_SECONDS):
            teller.say("alive")

    thread = threading.Thread(target=say, name="signs of life", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextlib.contextmanager
def _interrupts_heard() -> Iterator[None]:
    """By Python's own handler, which the trainer looks for; whoever started Ray may have had them ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@final
class _Teller:
    """An observer of the trainer that tells the sweep's process, and sends it what is saved from time to time."""

    def __init__(self, attempt: str, path: Path, news: Any) -> None:
        self._attempt, self._path, self._news = attempt, path, news
        self._told = self._sent = time.monotonic()

    def say(self, name: str, *arguments: Any) -> None:
        self._news.say.remote(self._attempt, name, *arguments)

    def started(self, total_epochs: int, first_epoch: int) -> None:
        """See `dorylax.observers.base.Observer`."""
        self.say("started", total_epochs, first_epoch)

    def epoch(self, record: EpochRecord) -> None:
        """Likewise. Checkpoints of earlier epochs are whole."""
        now = time.monotonic()
        if now - self._told >= _EPOCH_SECONDS:
            self._told = now
            self.say("epoch", record)
        if now - self._sent >= _SNAPSHOT_SECONDS:
            self.say("saved", pack(self._path))
            self._sent = time.monotonic()

    def finished(self, result: TrainResult) -> None:
        """Likewise."""
        self.say("finished", result.summary())
