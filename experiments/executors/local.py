"""Executors on this machine: runs one after the other in this process, or side by side in worker processes."""

from __future__ import annotations

import multiprocessing.connection
import threading
from collections import deque
from collections.abc import Generator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, final

from dorylax.errors import RunError
from dorylax.experiments.execution import RunObserver, Watcher
from dorylax.experiments.runner import DataCache, RunOptions, fail, run_one
from dorylax.experiments.sweep import Run, RunOutcome
from dorylax.processes import Worker

_GRACE_SECONDS = 60.0  # for a terminated run to finish its epoch and write a checkpoint


@final
class InProcess:
    """See `Executor`; `cache` may hold data that is loaded already."""

    def __init__(self, cache: DataCache | None = None) -> None:
        self._cache = DataCache() if cache is None else cache

    def execute(
        self, runs: Sequence[Run], folder: Path | None, watcher: Watcher, options: RunOptions
    ) -> Generator[RunOutcome, None, None]:
        """See `Executor`."""
        for index, run in enumerate(runs):
            watcher.begins(run)

            def say(name: str, *arguments: Any, run: Run = run) -> None:
                getattr(watcher, name)(run, *arguments)

            outcome = run_one(run, folder, RunObserver(say), self._cache, options)
            yield outcome
            if outcome.status == "open":
                return
            self._cache.keep_only([later.config.data for later in runs[index + 1 :]])


@final
class Processes:
    """See `Executor`. Each worker process serves many runs; the sweep has a folder.

    If a process dies, its run has failed, and the next run gets a new process. This process handles Ctrl-C, SIGTERM and
    SIGHUP: it terminates the workers, whose runs save a checkpoint as a single run does.

    Args:
        jobs: Runs at a time, ≥ 1.
    """

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._workers: list[Worker] = []
        self._busy: dict[Connection[Any, Any], tuple[Worker, Run]] = {}

    def execute(
        self, runs: Sequence[Run], folder: Path | None, watcher: Watcher, options: RunOptions
    ) -> Generator[RunOutcome, None, None]:
        """See `Executor`."""
        assert folder is not None
        todo = deque(runs)
        try:
            while todo or self._busy:
                while todo and len(self._busy) < self._jobs:
                    run = todo.popleft()
                    watcher.begins(run)
                    worker = self._idle(folder, options)
                    worker.send(run)
                    self._busy[worker.connection] = worker, run
                for connection in multiprocessing.connection.wait(list(self._busy)):
                    outcome = self._heard(connection, folder, watcher)
                    if outcome is not None:
                        yield outcome
        finally:
            self._end()

    def _idle(self, folder: Path, options: RunOptions) -> Worker:
        """A worker without a run; a new one if there is none alive."""
        for worker in [one for one in self._workers if one.connection not in self._busy]:
            if worker.process.poll() is None:
                return worker
            self._workers.remove(worker)
            worker.kill()
        self._workers.append(Worker(_serve, folder, options))
        return self._workers[-1]

    def _heard(self, connection: Any, folder: Path, watcher: Watcher) -> RunOutcome | None:
        """Pass on an event of a run, or return its outcome."""
        worker, run = self._busy[connection]
        try:
            message = worker.receive()
        except RunError as error:
            self._workers.remove(worker)
            message = fail(folder, run, f"the process that ran it {error}")
        if isinstance(message, OSError):
            raise message
        if isinstance(message, RunOutcome):
            del self._busy[connection]
            return message
        name, *arguments = message
        getattr(watcher, name)(run, *arguments)
        return None

    def _end(self) -> None:
        """End all workers at the same time; a second signal kills them."""
        for worker in self._workers:
            worker.send(None)
            if worker.connection in self._busy:
                worker.process.terminate()
        threads = [threading.Thread(target=worker.end, args=(_GRACE_SECONDS,)) for worker in self._workers]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except BaseException:
            for worker in self._workers:
                worker.kill()
            raise


def _serve(connection: Connection[Any, Any], folder: Path, options: RunOptions) -> None:
    """Run one run after the other; called in the process."""
    cache, observer = DataCache(), RunObserver(lambda *event: connection.send(event))
    while (run := connection.recv()) is not None:
        try:
            connection.send(run_one(run, folder, observer, cache, options))
        except OSError as error:  # not even the failure can be recorded, which ends the sweep
            connection.send(error)
