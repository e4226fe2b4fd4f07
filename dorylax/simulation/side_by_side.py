"""Scenarios simulated one after the other, in this process or in several at a time."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
from collections import deque
from collections.abc import Generator, Sequence
from multiprocessing.context import SpawnProcess
from typing import NamedTuple, final

from dorylax import spawning
from dorylax.errors import RunError
from dorylax.settings.errors import ConfigError
from dorylax.simulation.inputs import Inputs
from dorylax.simulation.result import Simulated
from dorylax.simulation.run import simulate
from dorylax.simulation.scenario import Scenario, ScenarioError
from dorylax.simulation.worker import serve

Outcome = Simulated | str
"""What a simulation has found, or why the scenario cannot be."""


class Task(NamedTuple):
    """A simulation to run.

    Attributes:
        scenario: the run.
        epochs: how many of it.
    """

    scenario: Scenario
    epochs: int

    def outcome(self, inputs: Inputs) -> Outcome:
        """Simulates it.

        Args:
            inputs: of earlier ones.

        Raises:
            SplitError, ValueError, OSError: see `simulate`; what is wrong with others, too.
        """
        try:
            return simulate(self.scenario, epochs=self.epochs, inputs=inputs)
        except (ConfigError, ScenarioError) as error:
            return str(error)


def outcomes(tasks: Sequence[Task], jobs: int) -> Generator[tuple[int, Outcome], None, None]:
    """Simulates scenarios; closed before its end, it leaves no process behind.

    Args:
        tasks: what to simulate.
        jobs: processes at a time; 1: this one.

    Yields:
        Places and what was found there, in the order in which simulations end.

    Raises:
        RunError: a process has died.
        SplitError, ValueError, OSError: see `simulate`.
    """
    inputs = Inputs()
    # Always one here: what is wrong with a model or a data set is told where its code and its frames are.
    here = 1 if jobs > 1 else len(tasks)
    for place, task in enumerate(tasks[:here]):
        yield place, task.outcome(inputs)
    del inputs
    workers = list[_Worker]()
    todo = deque(enumerate(tasks[here:], start=here))
    try:
        while todo or any(worker.place is not None for worker in workers):
            while todo and (worker := _idle(workers, jobs)) is not None:
                worker.give(*todo.popleft())
            busy = {worker.connection: worker for worker in workers if worker.place is not None}
            for connection in multiprocessing.connection.wait(list(busy)):
                yield busy[connection].taken()  # type: ignore[index]
    finally:
        for worker in workers:
            worker.end()


def _idle(workers: list[_Worker], jobs: int) -> _Worker | None:
    found = next((worker for worker in workers if worker.place is None), None)
    if found is None and len(workers) < jobs:
        with spawning.spawning():
            found = _Worker()
            workers.append(found)
    return found


@final
class _Worker:
    """A process, and the place that it is at."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        self.place: int | None = None
        arguments = (other, os.getpid())
        self._process: SpawnProcess = context.Process(target=serve, args=arguments, daemon=True)
        self._process.start()
        other.close()

    def give(self, place: int, task: Task) -> None:
        self.place = place
        with contextlib.suppress(OSError):  # it has just died, which `taken` will find
            self.connection.send(task)

    def taken(self) -> tuple[int, Outcome]:
        """What it has found."""
        assert self.place is not None
        try:
            found = self.connection.recv()
        except (EOFError, OSError):
            self._process.join()
            raise RunError(f"a process that simulated {spawning.death(self._process.exitcode)}") from None
        if isinstance(found, BaseException):
            raise found
        place, self.place = self.place, None
        return place, found

    def end(self) -> None:
        """At once: there is nothing to be kept."""
        self._process.kill()
        self._process.join()
        self.connection.close()
