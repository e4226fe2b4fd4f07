"""Runs of a sweep side by side, each in a process that lasts for many of them.

One that dies takes its run along and nothing else: the run has failed, and the next gets a new process. Ctrl-C, SIGTERM
and SIGHUP are this process's to hear; it asks the others to stop, which they do as a single run does, with a checkpoint.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import threading
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, final

from dorylax import spawning
from dorylax.experiments.outcome import RunOutcome
from dorylax.experiments.runner import DataCache, RunOptions, fail, run_one
from dorylax.experiments.sweep import Run
from dorylax.experiments.watcher import Watcher

if TYPE_CHECKING:
    from dorylax.runs.result import EpochRecord, TrainResult

_GRACE_SECONDS = 60.0
"""For a run that was asked to stop: it finishes its epoch and writes a checkpoint."""


@final
class Processes:
    """See `Executor`; the sweep has a folder.

    Args:
        jobs: how many at a time, ≥ 1.
    """

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs

    def execute(
        self, runs: Sequence[Run], folder: Path | None, watcher: Watcher, options: RunOptions
    ) -> Generator[RunOutcome, None, None]:
        """See `Executor`."""
        assert folder is not None
        todo = deque(runs)
        with _Pool(folder, min(self._jobs, len(todo)), options) as pool:
            while todo or pool.busy:
                while todo and pool.has_room:
                    run = todo.popleft()
                    watcher.begins(run)
                    pool.give(run)
                yield from pool.listen(watcher)


@final
class _Worker:
    """One process."""

    def __init__(self, folder: Path, options: RunOptions) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        arguments = (other, folder, options, os.getpid())
        self.process: SpawnProcess = context.Process(target=_serve, args=arguments, daemon=True)
        self.run: Run | None = None
        self.process.start()
        other.close()

    def end(self) -> None:
        """Asks it to go, and makes it."""
        with contextlib.suppress(OSError):
            self.connection.send(None)
        if self.run is not None:
            self.process.terminate()
        end = time.monotonic() + _GRACE_SECONDS
        with contextlib.suppress(EOFError, OSError):
            # What it still says is read, so that it never waits for a reader.
            while self.connection.poll(max(0.0, end - time.monotonic())):
                self.connection.recv()
        self.process.join(max(0.0, end - time.monotonic()))
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.connection.close()


@final
class _Pool:
    """The processes that there are."""

    def __init__(self, folder: Path, size: int, options: RunOptions) -> None:
        self._folder, self._size, self._options = folder, size, options
        self._workers: list[_Worker] = []

    def __enter__(self) -> _Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        threads = [threading.Thread(target=worker.end) for worker in self._workers]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except BaseException:
            # Asked a second time: at once.
            for worker in self._workers:
                worker.process.kill()
            for worker in self._workers:
                worker.process.join()
            raise

    @property
    def busy(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.run is not None]

    @property
    def has_room(self) -> bool:
        return len(self.busy) < self._size

    def give(self, run: Run) -> None:
        for idle in [one for one in self._workers if one.run is None and not one.process.is_alive()]:
            self._workers.remove(idle)
            idle.connection.close()
        worker = next((one for one in self._workers if one.run is None), None)
        if worker is None:
            with spawning.spawning():
                worker = _Worker(self._folder, self._options)
                self._workers.append(worker)
        worker.run = run
        with contextlib.suppress(OSError):  # it has just died, which `listen` will find
            worker.connection.send(run)

    def listen(self, watcher: Watcher) -> Iterator[RunOutcome]:
        """Waits until a process says something, or dies."""
        ready = multiprocessing.connection.wait([worker.connection for worker in self.busy])
        for worker in self.busy:
            run = worker.run
            if worker.connection not in ready or run is None:
                continue
            try:
                message = worker.connection.recv()
            except (EOFError, OSError):
                worker.process.join()
                self._workers.remove(worker)
                worker.connection.close()
                yield fail(self._folder, run, f"the process that ran it {spawning.death(worker.process.exitcode)}")
                continue
            if isinstance(message, OSError):
                raise message
            if isinstance(message, RunOutcome):
                worker.run = None
                yield message
            else:
                name, arguments = message
                getattr(watcher, name)(run, *arguments)


# In the process.


def _serve(connection: Connection[Any, Any], folder: Path, options: RunOptions, parent: int) -> None:
    spawning.serve(parent)
    cache = DataCache()
    while (run := connection.recv()) is not None:
        try:
            outcome = run_one(run, folder, _MessageObserver(connection), cache, options)
        except (
            OSError
        ) as error:  # its failure cannot be recorded either, which ends the sweep, as it does in one process
            connection.send(error)
        else:
            connection.send(outcome)


@final
class _MessageObserver:
    """An observer that tells the parent."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection

    def started(self, total_epochs: int, first_epoch: int) -> None:
        self._connection.send(("started", (total_epochs, first_epoch)))

    def epoch(self, record: EpochRecord) -> None:
        self._connection.send(("epoch", (record,)))

    def finished(self, result: TrainResult) -> None:
        self._connection.send(("finished", (result.summary(),)))
