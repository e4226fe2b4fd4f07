"""Scenarios simulated one after the other, in this process or in several at a time."""

from __future__ import annotations

import multiprocessing.connection
from collections import deque
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

from dorylax import spawning
from dorylax.errors import RunError
from dorylax.program.jaxpr.errors import SplitError
from dorylax.settings.errors import ConfigError
from dorylax.simulation.inputs import Inputs
from dorylax.simulation.result import Simulated
from dorylax.simulation.run import simulate
from dorylax.simulation.scenario import Scenario, ScenarioError

Outcome = Simulated | str
"""The result of a simulation, or the reason why the scenario is impossible."""


class Task(NamedTuple):
    """A scenario and the number of epochs to simulate."""

    scenario: Scenario
    epochs: int

    def outcome(self, inputs: Inputs) -> Outcome:
        """Simulate it with the inputs of earlier simulations.

        Raises:
            SplitError, ValueError, OSError: See `simulate`; such errors concern other tasks too.
        """
        try:
            return simulate(self.scenario, epochs=self.epochs, inputs=inputs)
        except (ConfigError, ScenarioError) as error:
            return str(error)


def outcomes(tasks: Sequence[Task], jobs: int) -> Generator[tuple[int, Outcome], None, None]:
    """Simulate scenarios; if it is closed before its end, it leaves no process behind.

    Args:
        tasks: The simulations.
        jobs: Processes at a time; 1 for this one.

    Yields:
        Places of tasks with their outcomes, in the order in which simulations end.

    Raises:
        RunError: A process has died.
        SplitError, ValueError, OSError: See `simulate`.
    """
    inputs = Inputs()
    # The first one here: errors of a model or a data set are then raised where their code and their frames are.
    here = 1 if jobs > 1 else len(tasks)
    for place, task in enumerate(tasks[:here]):
        yield place, task.outcome(inputs)
    del inputs
    todo, workers = deque(range(here, len(tasks))), list[spawning.Worker]()
    places: dict[Any, tuple[spawning.Worker, int]] = {}  # of busy workers, by their connections
    try:
        while todo or places:
            idle = [worker for worker in workers if worker.connection not in places]
            while todo and (idle or len(workers) < jobs):
                if not idle:
                    with spawning.spawning():
                        workers.append(spawning.Worker(serve))
                    idle.append(workers[-1])
                worker, place = idle.pop(), todo.popleft()
                worker.send(tasks[place])
                places[worker.connection] = worker, place
            for connection in multiprocessing.connection.wait(list(places)):
                worker, place = places.pop(connection)
                try:
                    found = worker.receive()
                except RunError as error:
                    raise RunError(f"a process that simulated {error}") from None
                if isinstance(found, BaseException):
                    raise found
                yield place, found
    finally:
        for worker in workers:
            worker.kill()


def serve(connection: Any) -> None:
    """Answer every task with its outcome or its error; run by a worker process."""
    inputs = Inputs()
    while True:
        task: Task = connection.recv()
        try:
            found: object = task.outcome(inputs)
        except SplitError as error:
            found = SplitError(str(error))  # the model's equations cannot be pickled
        except Exception as error:
            found = error
        connection.send(found)
