"""Scenarios simulated one after the other, in this process or in several at a time."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
from collections import deque
from collections.abc import Generator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, final

from dorylax import spawning
from dorylax.errors import DorylaxError
from dorylax.settings.errors import ConfigError
from dorylax.simulation.inputs import Inputs
from dorylax.simulation.result import Simulated
from dorylax.simulation.run import simulate
from dorylax.simulation.scenario import Scenario, ScenarioError


@final
class SimulationError(DorylaxError, RuntimeError):
    """A process that simulated is gone."""


Outcome = Simulated | str
"""What a simulation has found, or why the scenario cannot be."""


def outcomes(scenarios: Sequence[Scenario], epochs: int, jobs: int) -> Generator[tuple[int, Outcome], None, None]:
    """Simulates scenarios; closed before its end, it leaves no process behind.

    Args:
        scenarios: what to simulate.
        epochs: see `simulate`.
        jobs: processes at a time; 1: this one.

    Yields:
        Places and what was found there, in the order in which simulations end.

    Raises:
        SimulationError: a process has died.
        SplitError, ShardSummaryError, ValueError, OSError: see `simulate`.
    """
    inputs = Inputs()
    # Always one here: what is wrong with a model or a data set is told where its code and its frames are.
    here = 1 if jobs > 1 else len(scenarios)
    for place, scenario in enumerate(scenarios[:here]):
        yield place, _outcome(scenario, epochs, inputs)
    del inputs
    workers = list[_Worker]()
    todo = deque(enumerate(scenarios[here:], start=here))
    try:
        while todo or any(worker.place is not None for worker in workers):
            while todo and (worker := _idle(workers, jobs, epochs)) is not None:
                worker.give(*todo.popleft())
            busy = {worker.connection: worker for worker in workers if worker.place is not None}
            for connection in multiprocessing.connection.wait(list(busy)):
                yield busy[connection].taken()  # type: ignore[index]
    finally:
        for worker in workers:
            worker.end()


def _outcome(scenario: Scenario, epochs: int, inputs: Inputs) -> Outcome:
    try:
        return simulate(scenario, epochs=epochs, inputs=inputs)
    except (ConfigError, ScenarioError) as error:
        return str(error)


def _idle(workers: list[_Worker], jobs: int, epochs: int) -> _Worker | None:
    found = next((worker for worker in workers if worker.place is None), None)
    if found is None and len(workers) < jobs:
        with spawning.spawning():
            found = _Worker(epochs)
            workers.append(found)
    return found


@final
class _Worker:
    """A process, and the place that it is at."""

    def __init__(self, epochs: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        self.place: int | None = None
        arguments = (other, epochs, os.getpid())
        self._process: SpawnProcess = context.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        other.close()

    def give(self, place: int, scenario: Scenario) -> None:
        self.place = place
        with contextlib.suppress(OSError):  # it has just died, which `taken` will find
            self.connection.send(scenario)

    def taken(self) -> tuple[int, Outcome]:
        """What it has found."""
        assert self.place is not None
        try:
            found = self.connection.recv()
        except (EOFError, OSError):
            self._process.join()
            raise SimulationError(f"a process that simulated {spawning.death(self._process.exitcode)}") from None
        if isinstance(found, BaseException):
            raise found
        place, self.place = self.place, None
        return place, found

    def end(self) -> None:
        """At once: there is nothing to be kept."""
        self._process.kill()
        self._process.join()
        self.connection.close()


# In the process.


def _serve(connection: Connection[Any, Any], epochs: int, parent: int) -> None:
    spawning.serve(parent)
    inputs = Inputs()
    while True:
        scenario = connection.recv()
        try:
            found: Outcome | Exception = _outcome(scenario, epochs, inputs)
        except Exception as error:
            found = error
        connection.send(found)
