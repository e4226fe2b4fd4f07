"""Runs side by side on this machine, each in a worker process that serves many runs.

If a process dies, its run has failed, and the next run gets a new process. This process handles Ctrl-C, SIGTERM and SIGHUP:
it terminates the workers, whose runs save a checkpoint as a single run does.
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
from typing import TYPE_CHECKING, Any, final

from dorylax import spawning
from dorylax.experiments.outcome import RunOutcome
from dorylax.experiments.runner import DataCache, RunOptions, fail, run_one
from dorylax.experiments.sweep import Run
from dorylax.experiments.watcher import Watcher

if TYPE_CHECKING:
    from dorylax.runs.result import EpochRecord, TrainResult

_GRACE_SECONDS = 60.0  # for a terminated run to finish its epoch and write a checkpoint


@final
class Processes:
    """See `Executor`; the sweep has a folder.

    Args:
        jobs: Runs at a time, ≥ 1.
    """

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs

    def execute(
        self, runs: Sequence[Run], folder: Path | None, watcher: Watcher, options: RunOptions
    ) -> Generator[RunOutcome, None, None]:
        """See `Executor`."""
        assert folder is not None
        todo, workers = deque(runs), list[_Worker]()
        try:
            while todo or any(one.run is not None for one in workers):
                while todo and sum(one.run is not None for one in workers) < self._jobs:
                    run = todo.popleft()
                    watcher.begins(run)
                    _idle(workers, folder, options).give(run)
                yield from _listen(workers, folder, watcher)
        finally:
            _end(workers)


@final
class _Worker:
    """A process, and its run."""

    def __init__(self, folder: Path, options: RunOptions) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        arguments = (other, folder, options, os.getpid())
        self.process: SpawnProcess = context.Process(target=_serve, args=arguments, daemon=True)
        self.run: Run | None = None
        self.process.start()
        other.close()

    def give(self, run: Run) -> None:
        self.run = run
        with contextlib.suppress(OSError):  # if it has just died, `_listen` finds out
            self.connection.send(run)

    def end(self) -> None:
        """Ask it to end, and kill it after a while."""
        with contextlib.suppress(OSError):
            self.connection.send(None)
        if self.run is not None:
            self.process.terminate()
        end = time.monotonic() + _GRACE_SECONDS
        with contextlib.suppress(EOFError, OSError):  # its messages are read, so that it never waits for a reader
            while self.connection.poll(max(0.0, end - time.monotonic())):
                self.connection.recv()
        self.process.join(max(0.0, end - time.monotonic()))
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.connection.close()


def _idle(workers: list[_Worker], folder: Path, options: RunOptions) -> _Worker:
    """A worker without a run; a new one if there is none alive."""
    for dead in [one for one in workers if one.run is None and not one.process.is_alive()]:
        workers.remove(dead)
        dead.connection.close()
    for one in workers:
        if one.run is None:
            return one
    with spawning.spawning():
        workers.append(_Worker(folder, options))
    return workers[-1]


def _listen(workers: list[_Worker], folder: Path, watcher: Watcher) -> Iterator[RunOutcome]:
    """Wait until a busy process sends something or dies; yield outcomes."""
    busy = [one for one in workers if one.run is not None]
    ready = multiprocessing.connection.wait([one.connection for one in busy])
    for worker in busy:
        run = worker.run
        if worker.connection not in ready or run is None:
            continue
        try:
            message = worker.connection.recv()
        except (EOFError, OSError):
            worker.process.join()
            workers.remove(worker)
            worker.connection.close()
            yield fail(folder, run, f"the process that ran it {spawning.death(worker.process.exitcode)}")
            continue
        if isinstance(message, OSError):
            raise message
        if isinstance(message, RunOutcome):
            worker.run = None
            yield message
        else:
            name, arguments = message
            getattr(watcher, name)(run, *arguments)


def _end(workers: Sequence[_Worker]) -> None:
    threads = [threading.Thread(target=worker.end) for worker in workers]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException:  # a second signal ends at once
        for worker in workers:
            worker.process.kill()
        for worker in workers:
            worker.process.join()
        raise


# In the process.


def _serve(connection: Connection[Any, Any], folder: Path, options: RunOptions, parent: int) -> None:
    spawning.serve(parent)
    cache = DataCache()
    while (run := connection.recv()) is not None:
        try:
            outcome = run_one(run, folder, _MessageObserver(connection), cache, options)
        except OSError as error:  # not even the failure can be recorded, which ends the sweep
            connection.send(error)
        else:
            connection.send(outcome)


@final
class _MessageObserver:
    """An observer that sends events to the parent."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection

    def started(self, total_epochs: int, first_epoch: int) -> None:
        self._connection.send(("started", (total_epochs, first_epoch)))

    def epoch(self, record: EpochRecord) -> None:
        self._connection.send(("epoch", (record,)))

    def finished(self, result: TrainResult) -> None:
        self._connection.send(("finished", (result.summary(),)))
