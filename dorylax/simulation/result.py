"""The result of a simulation: seconds, dollars, utilization, and the time of tasks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple, final

from dorylax.cost import Bill, Calls, Cluster
from dorylax.observers.progress import dollars, duration
from dorylax.simulation.scenario import Backend

_IDLE = 0.5
"""Utilization below which a resource is no bottleneck."""


class Task(NamedTuple):
    """All tasks of a name (GA, AV, SC, …) that a resource ran in the simulated epochs, and their seconds together."""

    name: str
    resource: str
    number: int
    seconds: float


class Utilisation(NamedTuple):
    """Busy shares of the rented resources in the simulated epochs, 0 to 1.

    Attributes:
        graph_servers: Share of the threads of graph servers, or of their GPUs.
        functions: Share of the allowed concurrent calls; 0 without functions.
        parameter_servers: Share of each server's computing thread.
        network: Share of the bandwidth of graph servers, in the busier direction.
    """

    graph_servers: float
    functions: float
    parameter_servers: float
    network: float = 0.0

    @property
    def bottleneck(self) -> tuple[str, float]:
        """The busiest resource, and its share."""
        name, share = max(self._asdict().items(), key=lambda part: part[1])
        return name.replace("_", " "), share


@final
@dataclasses.dataclass(frozen=True)
class Simulated:
    """A run of which some epochs were simulated.

    The first epochs differ from later ones: functions start cold, ghosts are filled, and intervals that may run ahead spread
    over several epochs. Epochs that were not simulated count as the mean of the simulated later ones, or as the last one if
    there are none.

    Attributes:
        name, backend: Name and backend of the scenario.
        cluster: The rented machines.
        servers, parameter_servers, intervals: Numbers of servers, and of intervals per server.
        prepare: Seconds before the first epoch.
        epochs: Seconds of each simulated epoch.
        settling: Number of first epochs that differ from later ones (≥ 1).
        calls: Calls of functions before the first epoch, and in each epoch.
        total_epochs: Number of epochs of the whole run.
        tasks: Tasks of each name, the longest first.
        utilisation: Busy shares.
    """

    name: str
    backend: Backend
    cluster: Cluster
    servers: int
    parameter_servers: int
    intervals: int
    prepare: float
    epochs: tuple[float, ...]
    settling: int
    calls: tuple[Calls, ...]
    total_epochs: int
    tasks: tuple[Task, ...]
    utilisation: Utilisation

    @property
    def epoch(self) -> float:
        """Seconds of a later epoch."""
        return self._later(self.epochs)

    @property
    def seconds(self) -> float:
        """Seconds of the whole run."""
        known = self.epochs[: self.total_epochs]
        return self.prepare + sum(known) + (self.total_epochs - len(known)) * self.epoch

    @property
    def bill(self) -> Bill:
        """Bill of the whole run."""
        prepared, *each = self.calls
        known = each[: self.total_epochs]

        def total(name: str) -> int:
            numbers = [getattr(one, name) for one in each]
            later = round((self.total_epochs - len(known)) * self._later(numbers))
            return int(getattr(prepared, name) + sum(numbers[: len(known)]) + later)

        return Bill.of(
            self.cluster,
            seconds=self.seconds,
            graph_servers=self.servers,
            parameter_servers=self.parameter_servers,
            calls=Calls(total("requests"), total("milliseconds")),
        )

    @property
    def value(self) -> float | None:
        """1/(T·C) of the whole run, per second and dollar; None for a run without cost."""
        return self.bill.value(self.seconds)

    def _later(self, numbers: Sequence[float | int]) -> float:
        """The number for epochs that were not simulated."""
        later = numbers[self.settling :] or numbers[-1:]
        return sum(later) / len(later)

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON values."""
        bill = self.bill
        return {
            "name": self.name,
            "backend": self.backend,
            "cluster": self.cluster.name,
            "graph_server": self.cluster.graph_server.name,
            "prices_as_of": self.cluster.prices_as_of,
            "servers": self.servers,
            "parameter_servers": self.parameter_servers,
            "intervals": self.intervals,
            "functions": self.cluster.functions,
            "prepare_seconds": self.prepare,
            "simulated_epochs": list(self.epochs),
            "settling_epochs": self.settling,
            "epoch_seconds": self.epoch,
            "epochs": self.total_epochs,
            "seconds": self.seconds,
            "dollars": {
                "functions": bill.function_time + bill.function_requests,
                "graph_servers": bill.graph_servers,
                "parameter_servers": bill.parameter_servers,
                "total": bill.total,
            },
            "value": self.value,
            "utilisation": self.utilisation._asdict(),
            "tasks": [task._asdict() for task in self.tasks],
        }


def finding(found: Sequence[Simulated]) -> str:
    """The results of a scenario on some backends (at least one), in one sentence.

    It recommends functions only if some stage uses them.
    """
    useful = [one for one in found if one.bill.requests or not one.cluster.functions] or found
    best, fastest = min(useful, key=lambda one: one.bill.total), min(useful, key=lambda one: one.seconds)
    part, share = best.utilisation.bottleneck
    which = f"the cheapest of {len(found)} backends is {best.backend}" if len(found) > 1 else f"on {best.backend}"
    text = f"{which}: {best.total_epochs} epochs take {duration(best.seconds)} and cost {dollars(best.bill.total)}; "
    if share < _IDLE:
        text += f"nothing is busy more than {100 * share:.0f} % of the time ({part}), tasks wait for each other"
    else:
        text += f"the bottleneck is the {part}, busy {100 * share:.0f} % of the time"
    if fastest is not best:
        text += f"; {fastest.backend} takes {duration(fastest.seconds)} for {dollars(fastest.bill.total)}"
    return text
