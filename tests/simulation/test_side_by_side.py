from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from support.leftovers import children
from support.processes import alive, below, until

from dorylax.errors import RunError
from dorylax.processes import Worker
from dorylax.program.jaxpr.errors import SplitError
from dorylax.simulation.run import simulate
from dorylax.simulation.scenario import GraphSizes, Scenario
from dorylax.simulation.search import Task, outcomes

SIZES = GraphSizes(2000, 40_000, 30, 4)


def task(servers: int = 2, **settings) -> Task:
    settings = {key.replace("__", "."): value for key, value in settings.items()}
    settings = {"model.hidden_features": 8, "pipeline.servers": servers, "train.epochs": 20, **settings}
    return Task(Scenario.of("any", settings, graph=SIZES), 2)


@pytest.fixture
def others() -> Iterator[set[int]]:
    """Processes that this one had already; at the end it must have no more."""
    before = children()
    yield before
    assert children() <= before


def test_they_are_what_one_alone_is(others):
    tasks = [task(2), task(5000), task(3), task(2, pipeline__mode="async")]
    found = dict(outcomes(tasks, 1))
    assert list(found) == [0, 1, 2, 3]
    assert found[1] == "pipeline.servers must be ≤ 2000, the graph's vertices, got 5000"
    for place in (0, 2, 3):
        assert found[place] == simulate(tasks[place].scenario, epochs=2)
    assert dict(outcomes(tasks, 2)) == found


def test_what_is_wrong_with_all_is_raised(others):
    with pytest.raises(SplitError):
        list(outcomes([task(), task(model__name="support.unsplittable:Reversed")], 2))


def test_a_search_that_is_left_leaves_no_process(others):
    found = outcomes([task() for _ in range(6)], 3)
    next(found)
    next(found)
    assert len(children() - others) == 3
    found.close()
    assert children() <= others


def test_a_process_that_dies_is_said(others, monkeypatch):
    def send(worker: Worker, message: object) -> None:
        os.kill(worker.process.pid, signal.SIGKILL)

    monkeypatch.setattr(Worker, "send", send)
    with pytest.raises(RunError, match=r"^a process that simulated was killed by SIGKILL, as the system does"):
        list(outcomes([task(), task()], 2))


def test_processes_end_with_their_parent_even_while_they_start():
    code = (
        "from dorylax.simulation.scenario import GraphSizes, Scenario\n"
        "from dorylax.simulation.search import Task, outcomes\n"
        "task = Task(Scenario.of('any', {'train.epochs': 10**9}, graph=GraphSizes(2000, 40_000, 30, 4)), 1)\n"
        "list(outcomes([task, task._replace(epochs=10**9), task._replace(epochs=10**9)], 2))\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    until(lambda: bool(below(parent.pid)))
    theirs = set(below(parent.pid))
    parent.kill()
    parent.wait()
    until(lambda: not theirs & {one.pid for one in alive()})
