"""Decides which tensor stages run on functions and which on the graph server, by expected time and price. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from typing import NamedTuple


class StageTimes(NamedTuple):
    """One stage on one graph server.

    Attributes:
        calls: Calls of an epoch.
        server_seconds: Seconds of a call on a thread of the graph server.
        function_seconds: Seconds of the slowest of so many calls on functions, without waiting for a slot.
        function_dollars: Price of a call on a function.
    """

    calls: int
    server_seconds: float
    function_seconds: float
    function_dollars: float


class Room(NamedTuple):
    """Resources of one graph server.

    Attributes:
        threads: Threads for graph tasks, and for stages that stay.
        slots: Functions that it keeps busy at a time.
        rent: US dollars per second of the server, with its share of the parameter servers.
    """

    threads: int
    slots: int
    rent: float


class Expected(NamedTuple):
    """An epoch under one placement.

    Attributes:
        on_functions: Stages on functions.
        working: Seconds that the threads of the server need.
        waiting: Seconds of one call after the other on functions.
        seconds: Time of the epoch.
        dollars: Price of the epoch, of the server and of the functions.
    """

    on_functions: frozenset[int]
    working: float
    waiting: float
    seconds: float
    dollars: float

    def objective(self, price_weight: float) -> float:
        """Seconds · dollars^weight, which `decide` minimises. At weight 1 it is the inverse of Dorylus' value."""
        return float(self.seconds * self.dollars**price_weight)

    def overlap(self, seconds: float) -> float:
        """The share of the shorter of working and waiting that an epoch of these seconds has hidden, 0 to 1."""
        shorter = min(self.working, self.waiting)
        return min(max(0.0, (self.working + self.waiting - seconds) / shorter), 1.0) if shorter else 0.0


def expected(
    stages: Mapping[int, StageTimes], on_functions: Set[int], room: Room, graph_seconds: float, overlap: float
) -> Expected:
    """The epoch of a placement.

    Graph tasks and stages that stay share the threads. In synchronous epochs intervals meet before every gather, so that
    the server waits for the slowest call of each stage. Intervals of other epochs fill such waits: `overlap`.

    Args:
        stages: By number of the task.
        on_functions: Stages that run on functions.
        room: Resources of the server.
        graph_seconds: Time of all graph tasks of an epoch on all threads.
        overlap: Share of the shorter of working and waiting that is hidden, 0 to 1.
    """
    working, waiting, dollars = graph_seconds, 0.0, 0.0
    for index, stage in stages.items():
        if index in on_functions:
            waiting += math.ceil(stage.calls / room.slots) * stage.function_seconds
            dollars += stage.calls * stage.function_dollars
        else:
            working += math.ceil(stage.calls / room.threads) * stage.server_seconds
    seconds = working + waiting - overlap * min(working, waiting)
    return Expected(frozenset(on_functions), working, waiting, seconds, dollars + room.rent * seconds)


def decide(
    stages: Mapping[int, StageTimes], room: Room, graph_seconds: float, *, overlap: float, price_weight: float
) -> Expected:
    """Return the best placement by seconds · dollars^price_weight (≥ 0), of those that take the stages in one of two orders.

    Without overlap the result is exact. The logarithm of the objective is then concave in the seconds and the dollars of
    calls, so its least value is at a corner of their sums, and each corner takes the stages above some ratio of time gained
    to dollars spent. With overlap, stages with much work for their wait come first in the second order. Arguments are as for
    `expected`.
    """

    def gain(index: int) -> float:
        stage = stages[index]
        working = math.ceil(stage.calls / room.threads) * stage.server_seconds
        return working - math.ceil(stage.calls / room.slots) * stage.function_seconds

    def gain_per_dollar(index: int) -> float:
        return gain(index) / max(stages[index].calls * stages[index].function_dollars, 1e-30)

    def work_per_wait(index: int) -> float:
        return stages[index].server_seconds / max(stages[index].function_seconds, 1e-30)

    orders = (sorted(stages, key=lambda index: (-key(index), index)) for key in (gain_per_dollar, work_per_wait))
    placements = [frozenset(order[:count]) for order in orders for count in range(len(stages) + 1)]
    found = [expected(stages, placement, room, graph_seconds, overlap) for placement in placements]
    return min(found, key=lambda one: one.objective(price_weight))
