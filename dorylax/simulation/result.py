"""What comes of a simulation: seconds, dollars, what was busy, and which tasks took how long."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple, final

from dorylax.cost import Bill, Calls, Cluster
from dorylax.observers.progress import dollars, duration
from dorylax.simulation.scenario import Backend

_IDLE = 0.5
"""Share of the time below which nothing is a bottleneck."""


class Task(NamedTuple):
    """All tasks of a name in the epochs that were simulated.

    Attributes:
        name: GA, AV, SC, ….
        resource: who did them: "graph", "tensor", "network" or "parameters".
        number: how many there were.
        seconds: of all together.
    """

    name: str
    resource: str
    number: int
    seconds: float


class Utilisation(NamedTuple):
    """Shares of what is rented that were busy in the epochs that were simulated, 0 to 1.

    Attributes:
        graph_servers: of the threads of graph servers, or of their GPUs.
        functions: of the calls that may run at a time; 0 where there are none.
        parameter_servers: of the one thread of each that computes.
        network: of the bandwidth of graph servers, in the direction in which more is sent.
    """

    graph_servers: float
    functions: float
    parameter_servers: float
    network: float = 0.0

    @property
    def bottleneck(self) -> tuple[str, float]:
        """The part that was busy most, and its share."""
        name, share = max(self._asdict().items(), key=lambda part: part[1])
        return name.replace("_", " "), share


@final
@dataclasses.dataclass(frozen=True)
class Simulated:
    """A run of which some epochs were simulated.

    The first epochs differ from others: functions start cold, ghosts are filled, and where intervals may run ahead they
    spread over several epochs. Those that were not simulated are taken to be as the mean of the others that were, or as the
    last where there are none.

    Attributes:
        name, backend: of the scenario.
        cluster: what it ran on.
        servers, parameter_servers, intervals: how many; intervals of each server.
        prepare: seconds before the first epoch, for what is computed once.
        epochs: seconds of each epoch that was simulated.
        settling: how many first epochs differ from later ones, ≥ 1.
        calls: of functions before the first epoch, and in each epoch.
        total_epochs: of the whole run.
        tasks: what was done, what took longest first.
        utilisation: what was busy.
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
        """Seconds of an epoch that is not one of the first."""
        return self._later(self.epochs)

    @property
    def seconds(self) -> float:
        """Of the whole run."""
        known = self.epochs[: self.total_epochs]
        return self.prepare + sum(known) + (self.total_epochs - len(known)) * self.epoch

    @property
    def bill(self) -> Bill:
        """Of the whole run."""
        prepared, *each = self.calls
        known = each[: self.total_epochs]
        missing = self.total_epochs - len(known)
        requests = [one.requests for one in each]
        milliseconds = [one.milliseconds for one in each]
        calls = Calls(
            prepared.requests + sum(requests[: len(known)]) + round(missing * self._later(requests)),
            prepared.milliseconds + sum(milliseconds[: len(known)]) + round(missing * self._later(milliseconds)),
        )
        return Bill.of(
            self.cluster,
            seconds=self.seconds,
            graph_servers=self.servers,
            parameter_servers=self.parameter_servers,
            calls=calls,
        )

    @property
    def value(self) -> float | None:
        """1/(T·C) of the whole run, per second and dollar; None where it costs nothing."""
        return self.bill.value(self.seconds)

    def _later(self, numbers: Sequence[float | int]) -> float:
        """What is taken for epochs that were not simulated."""
        later = numbers[self.settling :] or numbers[-1:]
        return sum(later) / len(later)

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
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
    """The result of simulating a scenario on some backends, in one sentence.

    Args:
        found: One or more.
    """
    best, fastest = min(found, key=lambda one: one.bill.total), min(found, key=lambda one: one.seconds)
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
