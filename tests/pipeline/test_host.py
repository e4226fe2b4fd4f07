"""In which order an interval of a host enters, pulls, takes its steps and reports."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dorylax.clock import VirtualClock
from dorylax.pipeline import host as module
from dorylax.pipeline.evaluation import Evaluated
from dorylax.pipeline.host import GraphHost
from dorylax.pipeline.parameters.messages import Pulled
from dorylax.pipeline.server_counts import EpochCounts, GraphCounts
from dorylax.program.rows.types import Free, Rows

FEATURES, HIDDEN, KEY = "features", "hidden", "key"


def a_step(
    name: str, *, publishes: tuple[int, ...] = (), sums: tuple[str, ...] = (), forget: tuple[str, ...] = ()
) -> Any:
    return SimpleNamespace(kind=name, publishes=publishes, sums=sums, forget=forget)


class Server:
    """Intervals 4 and 5; writes down what is asked of it. Everybody enters only epochs before `last`."""

    first_interval, num_intervals = 4, 2
    shard = SimpleNamespace(server=1)

    def __init__(self, clock: VirtualClock, last: int = 2) -> None:
        self.log, self._last = list[tuple[Any, ...]](), last
        plan = SimpleNamespace(
            program=SimpleNamespace(
                traced=SimpleNamespace(step=SimpleNamespace(jaxpr=SimpleNamespace(invars=[FEATURES, KEY]))),
                analysis=SimpleNamespace(types={FEATURES: Rows("vertex", 0), "made": Rows("edge", 0), KEY: Free()}),
            ),
            publications=[SimpleNamespace(var=FEATURES), SimpleNamespace(var=HIDDEN)],
            once=[a_step("once")],
            rows_of_once=frozenset({FEATURES}),
            epoch=[a_step("forward", publishes=(1,)), a_step("backward", sums=("w",), forget=(HIDDEN,))],
        )
        self.context = SimpleNamespace(plan=plan, clock=clock)
        self.gate = self.parameters = self
        self.counts = EpochCounts(GraphCounts)

    async def enter(self, interval: int, epoch: int) -> None:
        self.log.append(("enter", interval, epoch))
        if epoch >= self._last:
            await asyncio.Event().wait()

    async def pull(self, interval: int, epoch: int) -> Pulled:
        self.log.append(("pull", interval, epoch))
        return Pulled(10 + epoch, {"w": np.zeros(2)}, {})

    async def publish(self, number: int, visit: Any) -> None:
        self.log.append(("publish", visit.number, visit.epoch, number))

    async def push(self, step: Any, visit: Any) -> None:
        self.log.append(("push", visit.number, visit.epoch, step.sums, visit.version))

    def release(self) -> None:
        self.log.append(("release", None))

    async def finish(self, visit: Any) -> None:
        assert visit.epoch < 0 or HIDDEN not in visit.values
        self.log.append(("finish", visit.number, visit.epoch))


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> None:
    async def noted(server: Server, step: Any, visit: Any) -> None:
        if step.kind == "backward":
            assert visit.values.keys() == {HIDDEN}  # kept for as long as it is read
        server.log.append((step.kind, visit.number, visit.epoch))
        visit.values["made" if step.kind == "once" else HIDDEN] = np.zeros(1)

    monkeypatch.setattr(module, "RUN", dict.fromkeys(("once", "forward", "backward"), noted))


def host_of(clock: VirtualClock) -> tuple[GraphHost, Any]:
    server: Any = Server(clock)
    constants: Any = [{FEATURES: np.ones(3), KEY: np.zeros(2)} for _ in range(2)]
    return GraphHost(server, constants, lambda message: server.log.append((type(message).__name__, *message))), server


def of_interval(log: list[Any], number: int) -> list[Any]:
    return [entry for entry in log if entry[0] != "enter" and entry[1] == number]


@pytest.mark.usefixtures("steps")
def test_data_are_published_before_what_is_computed_once() -> None:
    with VirtualClock() as clock:
        host, server = host_of(clock)
        clock.run(asyncio.wait(host.prepare()))
    expected = [("publish", 5, -1, 0), ("once", 5, -1), ("finish", 5, -1)]
    assert of_interval(server.log, 5) == expected
    assert [set(constants) for constants in host._constants] == [{"made", KEY}, {"made", KEY}]
    assert server.log.index(("release", None)) == len(server.log) - 1  # once, when no interval needs any of it
    assert list(host.free_values()) == [KEY]


@pytest.mark.usefixtures("steps")
def test_an_epoch_is_reported_when_all_that_was_sent_has_come() -> None:
    with VirtualClock() as clock:
        host, server = host_of(clock)
        host.begin(SimpleNamespace(values=lambda pulled, epoch: {}), 0)  # type: ignore[arg-type]
        clock.run(clock.sleep(1.0, (0,)))
    assert of_interval(server.log, 4) == [
        entry
        for epoch in (0, 1)
        for entry in (
            ("pull", 4, epoch),
            ("forward", 4, epoch),
            ("publish", 4, epoch, 1),
            ("backward", 4, epoch),
            ("push", 4, epoch, ("w",), 10 + epoch),
            ("finish", 4, epoch),
            ("Walked", 4, epoch),
        )
    ]
    assert server.log.count(("enter", 5, 2)) == 1


def test_evaluations_of_intervals_add_up() -> None:
    parts = [Evaluated(np.array([[1, number]]), number == 1) for number in range(3)]
    total = Evaluated.of(parts)
    np.testing.assert_array_equal(total.sums, [[3, 3]])
    assert total.nan
    assert not Evaluated.of(parts[::2]).nan
