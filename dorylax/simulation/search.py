"""What-ifs: a scenario at all points of a grid, the Pareto front of time and dollars, and the choice of a point."""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing.connection
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, final

from dorylax.columns import column
from dorylax.errors import RunError
from dorylax.observers.progress import dollars, duration
from dorylax.processes import Worker
from dorylax.program.jaxpr.errors import SplitError
from dorylax.settings.errors import ConfigError
from dorylax.simulation import choice
from dorylax.simulation.choice import Price, Wishes
from dorylax.simulation.grid import Grid, Point, Value
from dorylax.simulation.result import Simulated
from dorylax.simulation.run import Inputs, simulate
from dorylax.simulation.scenario import Scenario, ScenarioError

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]

POINTS = 100
"""Default upper bound of the number of points in a grid."""
_EPOCHS = (1, 8)
"""Bounds of the number of epochs to simulate after a point has settled."""
_INTERVALS = 1000
"""Intervals to simulate over all servers and epochs. Late functions are rare, so few intervals would have some or none."""

_NUMBERS: Mapping[str, Callable[[Simulated], float | None]] = {
    "seconds": lambda found: found.seconds,
    "epoch_seconds": lambda found: found.epoch,
    "dollars": lambda found: found.bill.total,
    "function_dollars": lambda found: found.bill.function_time + found.bill.function_requests,
    "graph_server_dollars": lambda found: found.bill.graph_servers,
    "parameter_server_dollars": lambda found: found.bill.parameter_servers,
    "value": lambda found: found.value,
    "graph_server_utilisation": lambda found: found.utilisation.graph_servers,
    "function_utilisation": lambda found: found.utilisation.functions,
    "parameter_server_utilisation": lambda found: found.utilisation.parameter_servers,
    "network_utilisation": lambda found: found.utilisation.network,
}
_WORDS = ("backend", "graph_server", "mode")
COLUMNS: Mapping[str, type] = {
    **{name: str if name in _WORDS else int for name in Point._fields},
    "simulated_epochs": int,
    **dict.fromkeys(_NUMBERS, float),
    "front": bool,
    "reason": str,
}
"""Columns of rows and frames, with their types."""
Outcome = Simulated | str
"""The result of a simulation, or the reason why the scenario is impossible."""


@final
@dataclasses.dataclass(frozen=True)
class Tried:
    """A point of the grid with its result, or else the reason why it is impossible."""

    point: Point
    found: Simulated | None
    reason: str | None


@final
@dataclasses.dataclass(frozen=True)
class Search:
    """The results on a grid.

    Attributes:
        name: Name of the scenario.
        grid: The grid.
        points: Number of points in the grid.
        tried: Results in the order of the grid; fewer than `points` after an interruption.
    """

    name: str
    grid: Grid
    points: int
    tried: tuple[Tried, ...]

    @property
    def complete(self) -> bool:
        """Whether all points were tried."""
        return len(self.tried) == self.points

    @cached_property
    def known(self) -> tuple[tuple[Point, Simulated], ...]:
        """The points that can be simulated, with their results."""
        return tuple((one.point, one.found) for one in self.tried if one.found is not None)

    @cached_property
    def prices(self) -> tuple[Price, ...]:
        """Times and costs of `known`."""
        return tuple(Price(found.seconds, found.bill.total) for _, found in self.known)

    @cached_property
    def front(self) -> tuple[Point, ...]:
        """The points that no other beats in time or dollars without being worse in the other, the fastest first."""
        return tuple(self.known[place][0] for place in choice.front(self.prices))

    def at(self, point: Point) -> Simulated:
        """The result at a point; a KeyError is raised if it is impossible or was not tried."""
        return dict(self.known)[point]

    def pick(self, budget: float | None = None, deadline: float | None = None) -> Point:
        """The fastest within a budget, the cheapest within a deadline; with both or neither the best by value, 1/(T·C).

        Args:
            budget: Most US dollars.
            deadline: Most seconds.

        Raises:
            ScenarioError: No point is within both bounds (the text names the nearest one), or all points are impossible.
        """
        wishes = Wishes(budget, deadline)
        if (place := choice.pick(self.prices, wishes)) is not None:
            return self.known[place][0]
        if (near := choice.nearest(self.prices, wishes)) is None:
            reason = next((f": {one.reason}" for one in self.tried), "")
            raise ScenarioError(f"no point of the what-if can be simulated{reason}")
        raise ScenarioError(f"nothing is {wishes.within}: the nearest is {self.priced(self.known[near][0])}")

    def priced(self, point: Point) -> str:
        """A tried point with its time and cost, as text."""
        found = self.at(point)
        return f"{point.label(self.grid.axes)}: {duration(found.seconds)} and {dollars(found.bill.total)}"

    def rows(self) -> list[dict[str, Any]]:
        """A row of settings and results for each tried point; missing results are None."""
        front, rows = set(self.front), list[dict[str, Any]]()
        for one in self.tried:
            row: dict[str, Any] = dict.fromkeys(COLUMNS) | one.point._asdict()
            if (found := one.found) is not None:
                row |= {"simulated_epochs": len(found.epochs), **{name: of(found) for name, of in _NUMBERS.items()}}
            rows.append(row | {"front": one.point in front, "reason": one.reason})
        return rows

    def frame(self) -> pandas.DataFrame:
        """`rows` as a frame; missing numbers are NaN, or `pandas.NA` in columns of integers and text."""
        import pandas

        rows = self.rows()
        return pandas.DataFrame({name: column([row[name] for row in rows], kind) for name, kind in COLUMNS.items()})


def what_if(
    scenario: Scenario,
    grid: str | Mapping[str, Sequence[Value]] | Grid,
    *,
    epochs: int | None = None,
    points: int = POINTS,
    jobs: int = 1,
    on_tried: Callable[[Tried], None] | None = None,
) -> Search:
    """Simulates a scenario at all points of a grid.

    The result lists impossible points with the reason, such as too little memory of a GPU or too few vertices. All points
    train the same number of epochs (`train.epochs`), in any mode and with any staleness. Ctrl-C ends the search, which then
    returns the finished points.

    Args:
        scenario: Settings outside the grid.
        grid: Values by axis, or text for `Grid.parse`.
        epochs: Number of epochs to simulate per point (≥ 1, at most those of the run), or None for `usual_epochs`.
        points: Upper bound of the number of points.
        jobs: Number of concurrent processes (≥ 1), which does not change the result.
        on_tried: Called after each finished point.

    Raises:
        ScenarioError: The grid is invalid or too large. Nothing has been simulated.
        ConfigError: The settings of every point contradict each other. Nothing has been simulated.
        RunError: A process has died.
        SplitError, ValueError, OSError: See `simulate`.
    """
    if isinstance(grid, str):
        grid = Grid.parse(grid)
    elif not isinstance(grid, Grid):
        grid = Grid({axis: tuple(values) for axis, values in grid.items()})
    every = grid.points(scenario, points)
    tried: list[Tried | None] = [None] * len(every)
    tasks: dict[int, Task] = {}
    refused: ConfigError | None = None
    for place, point in enumerate(every):
        try:
            tasks[place] = Task(point.of(scenario), usual_epochs(point) if epochs is None else epochs)
        except ConfigError as error:
            refused, tried[place] = error, Tried(point, None, str(error))
    if refused is not None and not tasks:
        raise refused
    places = list(tasks)
    if jobs > 1:
        # A short point first, alone (`outcomes`), then the longest ones, so that all processes end at about the same time.
        places.sort(key=lambda place: every[place].work * tasks[place].epochs)
        places = places[:1] + places[:0:-1]
    with (
        contextlib.suppress(KeyboardInterrupt),
        contextlib.closing(outcomes([tasks[place] for place in places], jobs)) as ended,
    ):
        for number, found in ended:
            place = places[number]
            simulated, reason = (None, found) if isinstance(found, str) else (found, None)
            tried[place] = one = Tried(every[place], simulated, reason)
            if on_tried is not None:
                on_tried(one)
    return Search(scenario.name, grid, len(every), tuple(one for one in tried if one is not None))


def usual_epochs(point: Point) -> int:
    """The default number of epochs to simulate for a point: the fewer intervals, the more epochs."""
    enough = -(-_INTERVALS // (point.servers * point.intervals))
    return 1 + (point.staleness or 0) + min(max(enough, _EPOCHS[0]), _EPOCHS[1])


class Task(NamedTuple):
    """A scenario and the number of epochs to simulate."""

    scenario: Scenario
    epochs: int

    def outcome(self, inputs: Inputs) -> Outcome:
        """Simulate it with the inputs of earlier simulations; other errors of `simulate` concern other tasks, too."""
        try:
            return simulate(self.scenario, epochs=self.epochs, inputs=inputs)
        except ConfigError as error:
            return str(error)


def outcomes(tasks: Sequence[Task], jobs: int) -> Generator[tuple[int, Outcome], None, None]:
    """Simulate scenarios in `jobs` processes at a time (1: in this one); closing it leaves no process behind.

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
    todo, busy = iter(range(here, len(tasks))), dict[Any, tuple[Worker, int]]()  # by the workers' connections
    workers = list[Worker]()

    def occupy(worker: Worker) -> None:
        if (place := next(todo, None)) is not None:
            worker.send(tasks[place])
            busy[worker.connection] = worker, place

    try:
        for _ in range(min(jobs, len(tasks) - here)):
            workers.append(Worker(serve))
            occupy(workers[-1])
        while busy:
            for connection in multiprocessing.connection.wait(list(busy)):
                worker, place = busy.pop(connection)
                try:
                    found = worker.receive()
                except RunError as error:
                    raise RunError(f"a process that simulated {error}") from None
                if isinstance(found, BaseException):
                    raise found
                occupy(worker)
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
