"""What-ifs: a scenario at all points of a grid, the Pareto front of time and dollars, and what to choose from it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, final

from dorylax.columns import column
from dorylax.observers.progress import dollars, duration
from dorylax.settings.errors import ConfigError
from dorylax.simulation import choice
from dorylax.simulation.choice import Price, Wishes
from dorylax.simulation.grid import Grid, Point, Value
from dorylax.simulation.result import Simulated
from dorylax.simulation.scenario import Scenario, ScenarioError
from dorylax.simulation.side_by_side import outcomes
from dorylax.simulation.task import Task

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]

POINTS = 100
"""Of a grid at most, unless more are asked for."""
_EPOCHS = range(1, 9)
"""How many epochs of a point are simulated once it has settled."""
_INTERVALS = 1000
"""Of all servers and all these epochs together: late functions are rare, and of few intervals an epoch has some or none."""

COLUMNS: Mapping[str, type] = {
    "backend": str,
    "graph_server": str,
    "servers": int,
    "functions": int,
    "intervals": int,
    "parameter_servers": int,
    "mode": str,
    "staleness": int,
    "simulated_epochs": int,
    "seconds": float,
    "epoch_seconds": float,
    "dollars": float,
    "function_dollars": float,
    "graph_server_dollars": float,
    "parameter_server_dollars": float,
    "value": float,
    "graph_server_utilisation": float,
    "function_utilisation": float,
    "parameter_server_utilisation": float,
    "network_utilisation": float,
    "front": bool,
    "reason": str,
}
"""Of rows and frames, with their types."""


@final
@dataclasses.dataclass(frozen=True)
class Tried:
    """A point of the grid.

    Attributes:
        point: which one.
        found: what it takes and costs; None where it cannot be.
        reason: why it cannot be; None where it can.
    """

    point: Point
    found: Simulated | None
    reason: str | None


@final
@dataclasses.dataclass(frozen=True)
class Search:
    """The results on a grid.

    Attributes:
        name: of the scenario.
        grid: what was to be tried.
        points: how many those are.
        tried: what was, in the order of the grid; fewer where the search was interrupted.
    """

    name: str
    grid: Grid
    points: int
    tried: tuple[Tried, ...]

    @property
    def complete(self) -> bool:
        """Whether all was tried."""
        return len(self.tried) == self.points

    @cached_property
    def known(self) -> tuple[tuple[Point, Simulated], ...]:
        """The points that can be simulated, with their results."""
        return tuple((one.point, one.found) for one in self.tried if one.found is not None)

    @cached_property
    def prices(self) -> tuple[Price, ...]:
        """Of `known`."""
        return tuple(Price(found.seconds, found.bill.total) for _, found in self.known)

    @cached_property
    def front(self) -> tuple[Point, ...]:
        """The points that no other beats in time or dollars without being worse in the other, the fastest first."""
        return tuple(self.known[place][0] for place in choice.front(self.prices))

    def at(self, point: Point) -> Simulated:
        """What was found there.

        Raises:
            KeyError: it is not known.
        """
        return self._by_point[point]

    @cached_property
    def _by_point(self) -> Mapping[Point, Simulated]:
        return dict(self.known)

    def pick(self, budget: float | None = None, deadline: float | None = None) -> Point:
        """The fastest within a budget, the cheapest within a deadline; with both or neither the best by value, 1/(T·C).

        Args:
            budget: US dollars at most.
            deadline: seconds at most.

        Raises:
            ScenarioError: nothing is within both, and it names what is nearest; or nothing can be simulated.
        """
        wishes = Wishes(budget, deadline)
        if (place := choice.pick(self.prices, wishes)) is not None:
            return self.known[place][0]
        if (near := choice.nearest(self.prices, wishes)) is None:
            reason = next((f": {one.reason}" for one in self.tried), "")
            raise ScenarioError(f"no point of the what-if can be simulated{reason}")
        raise ScenarioError(f"nothing is {wishes.within}: the nearest is {self.priced(self.known[near][0])}")

    def priced(self, point: Point) -> str:
        """A point that is known, what it takes and costs, in words."""
        found = self.at(point)
        return f"{point.label(self.grid.axes)}: {duration(found.seconds)} and {dollars(found.bill.total)}"

    def rows(self) -> list[dict[str, Any]]:
        """A row for each point that was tried: what it is, and what was found; None for what is not known."""
        front = set(self.front)
        return [_row(one, front=one.point in front) for one in self.tried]

    def frame(self) -> pandas.DataFrame:
        """`rows` as a frame; numbers that are missing are NaN, or `pandas.NA` in columns of whole numbers and text."""
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

    Points that cannot be, because a GPU's memory does not suffice or the graph has too few vertices, are in the result with
    the reason. All points have as many epochs (`train.epochs`), whether or not staleness or the mode would need others, and
    intervals run ahead from the beginning where they may (`simulate` with `settled`).
    Ctrl-C ends the search: the result is what there is.

    Args:
        scenario: what all points are in all that the grid does not say.
        grid: see `Grid.parse` for text, else values by axis.
        epochs: how many to simulate of each, ≥ 1; no more than the run has. None: `usual_epochs`.
        points: how many there may be.
        jobs: processes that simulate at a time, ≥ 1; the result is the same.
        on_tried: called after each point, as they end.

    Raises:
        ScenarioError: the grid cannot be, or is too large; nothing has been simulated then.
        ConfigError: no point's settings go together; likewise.
        SimulationError: a process has died.
        SplitError, ValueError, OSError: see `simulate`.
    """
    if not isinstance(grid, Grid):
        grid = (
            Grid.parse(grid) if isinstance(grid, str) else Grid({axis: tuple(values) for axis, values in grid.items()})
        )
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
        # A short one first, alone (`outcomes`); then the longest, so that in the end no process waits for another.
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
    """How many epochs of a point are simulated unless somebody says it: few of many intervals, more of few."""
    enough = -(-_INTERVALS // (point.servers * point.intervals))
    return 1 + (point.staleness or 0) + min(max(enough, _EPOCHS[0]), _EPOCHS[-1])


def _row(one: Tried, *, front: bool) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(COLUMNS) | one.point._asdict() | {"front": front, "reason": one.reason}
    if (found := one.found) is not None:
        bill, busy = found.bill, found.utilisation
        row |= {
            "simulated_epochs": len(found.epochs),
            "seconds": found.seconds,
            "epoch_seconds": found.epoch,
            "dollars": bill.total,
            "function_dollars": bill.function_time + bill.function_requests,
            "graph_server_dollars": bill.graph_servers,
            "parameter_server_dollars": bill.parameter_servers,
            "value": found.value,
            "graph_server_utilisation": busy.graph_servers,
            "function_utilisation": busy.functions,
            "parameter_server_utilisation": busy.parameter_servers,
            "network_utilisation": busy.network,
        }
    return row
