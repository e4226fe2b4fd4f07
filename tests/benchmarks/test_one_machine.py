"""Runs on the real clock as simulations on one machine have them (`benchmarks/harness/one_machine.py`)."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from support.calibrations import REFERENCES as MEASURED
from support.calibrations import measured
from support.calm import calm

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from dorylax.calibration.description import cluster_of, to_text
from dorylax.calibration.steps import summary
from dorylax.clock import VirtualClock
from dorylax.cost import DEFAULT_CLUSTER, Cluster, RowsRead, find_cluster
from dorylax.cost.time_model import times_of
from dorylax.pipeline.config import PipelineConfig
from dorylax.serverless.config import TensorConfig
from dorylax.simulation.run import simulate
from harness.one_machine import REFERENCES, RUNS, Here, OneMachine, References, cores

SERVER = replace(
    DEFAULT_CLUSTER.graph_server,
    name="this-machine",
    threads=2,
    flops=10e9,
    memory_bandwidth=5e9,
    total_memory_bandwidth=8e9,
    network_bandwidth=1e9,
    overhead=1e-3,
    threads_per_core=1,
    lone_thread=1.0,
)
APART = replace(
    calm(replace(DEFAULT_CLUSTER, graph_server=SERVER, parameter_server=SERVER, latency=1e-4)),
    contention=True,
    measured=measured(),
)
HERE = OneMachine(**vars(APART), tensor_threads=2)
"""Stages do 5e9 operations that are no products in a second and thread, and move 8e9 bytes."""


def ends(cluster, *tasks):
    """When each of these tasks ends that begin together."""
    found = {}
    with VirtualClock() as clock:
        times = times_of(cluster, 0, clock, 2)

        async def one(k, task):
            await clock.sleep(task(times), (k,))
            found[k] = clock.now()

        async def all_of_them():
            await asyncio.gather(*(one(k, task) for k, task in enumerate(tasks)))

        clock.run(all_of_them())
    return [found[k] for k in range(len(tasks))]


def test_threads_take_turns_where_there_are_more_than_cores():
    speeds = cores(SERVER, 2)
    assert speeds([1, 0, 0]) == (1.0, 5e9, 1.0)
    assert speeds([2, 0, 0])[0] == 1.0
    assert speeds([4, 0, 0])[0] == 0.5
    assert speeds([0, 2, 0])[1] == 4e9  # the memory's total
    assert speeds([2, 2, 0])[1] == 2.5e9
    # A tensor task with two threads beside one that computes: three on two cores.
    assert speeds([1, 0, 1]) == pytest.approx((2 / 3, 5e9 * 2 / 3, 2 / 3))


def test_hyper_threads_slow_each_other_down():
    speeds = cores(replace(SERVER, threads_per_core=2, lone_thread=1.6), 1)
    assert speeds([1, 0, 0]) == pytest.approx((1.0, 8e9, 1.0))
    assert speeds([2, 0, 0]) == pytest.approx((1 / 1.6, 5e9, 1 / 1.6))


def test_servers_share_the_machine():
    """Each of four takes its overhead and 1 s of a core: two seconds on two cores, whichever servers' they are."""

    def task(server):
        return lambda times: times.graph_task((server,), flops=10e9, bytes=0, server=server)

    assert ends(HERE, *map(task, range(4))) == pytest.approx([2.002] * 4)
    assert ends(HERE, task(0), task(1)) == pytest.approx([1.001] * 2)


def test_tensor_tasks_of_threads_read_rows_where_they_lie():
    """On two threads: 20e9 operations of products and 2e9 others, and 8e9 bytes."""
    function = replace(HERE.function, overhead=2e-3)

    def call(times):
        return times.tensor_task((0,), flops=22e9, elementwise=2e9, bytes_in=5e9, bytes_out=3e9)

    assert ends(replace(HERE, function=function), call) == pytest.approx([2e-3 + 1 + 0.2 + 0.5])
    assert ends(replace(HERE, function=function), call, call) == pytest.approx([2e-3 + 2 * 1.7] * 2)


def test_workers_fetch_rows_behind_their_link():
    """3 requests of 10 ms, 100 MB at 25 MB/s, and as many through both processes at 1 GB/s; then they are computed on."""
    function = replace(HERE.function, overhead=2e-3, lone_bandwidth=1e9)
    machine = {"tensor_threads": 1, "workers": 2, "request_seconds": 0.01, "link_bandwidth": 25e6}
    cluster = replace(HERE, function=function, **machine)

    def call(times):
        return times.tensor_task((0,), flops=10e9, bytes_in=60e6, bytes_out=40e6, requests=3)

    computed = 1 + 0.1 / 8
    assert ends(cluster, call) == pytest.approx([2e-3 + 0.03 + 4 + 0.1 + computed])
    # Of three on two cores the link does not slow the others down, and all else takes turns.
    assert ends(cluster, call, call, call) == pytest.approx([4.03 + 3e-3 + 0.3 + 1.5 * computed] * 3)


def test_messages_between_threads_are_read_and_between_processes_carried():
    def message(times):
        return times.message((0,), bytes=1e9)

    assert ends(HERE, message) == pytest.approx([0.2])
    apart = replace(HERE, tensor_threads=1, processes=True)
    assert ends(apart, message) == pytest.approx([1 + 1e-4])
    assert ends(apart, lambda times: times.message((0,), bytes=0)) == pytest.approx([1e-4])
    # Both ends are busy, on both cores: whoever computes beside them slows them down.

    def task(times):
        return times.graph_task((0,), flops=20e9, bytes=0)

    carried, computed = ends(apart, message, task)
    assert carried == pytest.approx(1.5, rel=1e-2)
    assert computed == pytest.approx(2.5, rel=1e-2)


def test_updates_share_the_machine():
    def update(times):
        return times.update((0,), bytes=5e9 / 7)

    assert ends(HERE, update) == pytest.approx([1.001])
    assert ends(HERE, *[update] * 4) == pytest.approx([0.002 + 4 * 5 / 8] * 4)


def test_tasks_of_a_measured_machine_take_what_was_measured():
    """As where each server has its own (tests/cost/test_measured_speeds.py)."""
    tasks = (
        lambda times: times.graph_task((0,), flops=12e9, elementwise=2e9, bytes=8e9),
        lambda times: times.graph_task((0,), flops=0, bytes=20e9),
        lambda times: times.graph_task((0,), flops=0, bytes=5e9, rows=RowsRead(400, 9000)),
    )
    assert [ends(HERE, task) for task in tasks] == [pytest.approx(ends(APART, task)) for task in tasks]


def test_threads_that_read_what_caches_hold_do_not_wait_for_memory():
    """Two threads take as long as two were measured to take together: what memory gives matters where it is read."""
    rest = tuple(one for one in HERE.measured.results if one.kind != "gather")
    gathers = tuple(
        summary("gather", [speed] * 3, width=100, rows_bytes=size, threads=threads)
        for threads, size, speed in ((1, 1000, 50e9), (2, 1000, 80e9), (1, 9000, 5e9), (2, 9000, 6e9))
    )
    server = replace(HERE.graph_server, threads=2, total_memory_bandwidth=6e9)
    cluster = replace(HERE, graph_server=server, measured=replace(HERE.measured, results=gathers + rest))

    def gather(times, size, bytes):
        return times.graph_task((0,), flops=0, bytes=bytes, rows=RowsRead(400, size))

    overhead = 1e-3
    for size, alone, together in ((1000, 50e9, 80e9), (9000, 5e9, 6e9)):
        one = partial(gather, size=size, bytes=alone)  # a second alone
        assert ends(cluster, one) == pytest.approx([overhead + 1])
        assert ends(cluster, one, one) == pytest.approx([overhead + 2 * alone / together] * 2, rel=5e-3)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """Two cores."""
    path = tmp_path_factory.mktemp("machine") / "mine.yaml"
    path.write_text(to_text(cluster_of(measured(), "mine", 0.0)))
    return find_cluster(path)


@pytest.fixture(scope="module")
def here(machine: Cluster) -> Here:
    return Here(machine, References(**MEASURED))


def test_threads_of_this_process(here: Here) -> None:
    config, cluster = here.placed(PipelineConfig(servers=2, intervals=3))
    assert (config.clock, config.graph_threads, config.tensor.slots) == ("virtual", 1, 1)
    assert (cluster.tensor_threads, cluster.workers) == (2, 0)
    assert not cluster.ships
    # Inside a tensor task and around it.
    assert cluster.function.overhead == pytest.approx(3e-4 + 2e-4)


def test_workers_behind_a_link(here: Here) -> None:
    tensor = TensorConfig(backend="local", workers=4, slots=3, latency=0.25, bandwidth=1e6)
    config, cluster = here.placed(PipelineConfig(tensor=tensor))
    assert (cluster.tensor_threads, cluster.workers) == (1, 4)
    assert (cluster.request_seconds, cluster.link_bandwidth) == (0.25, 1e6)
    assert cluster.ships
    assert (cluster.functions, config.tensor.slots, config.tensor.backend) == (3, 3, "inline")
    assert cluster.function.overhead == pytest.approx(2e-3 + 2e-4)
    assert cluster.function.lone_bandwidth == 2e9


def test_processes_have_their_share_of_the_cores(here: Here) -> None:
    _, cluster = here.placed(PipelineConfig(servers=2, hosts="processes"))
    assert (cluster.processes, cluster.tensor_threads) == (True, 1)


SETTINGS = {"data.name": "communities", "data.size": "tiny", "model.name": "gcn", "train.epochs": 4}


@pytest.mark.parametrize(
    "given",
    [
        {"pipeline.intervals": 2},
        {"pipeline.servers": 2, "pipeline.hosts": "processes"},
        {
            "pipeline.mode": "async",
            "tensor.backend": "local",
            "tensor.workers": 2,
            "tensor.latency": 0.01,
            "tensor.placement": "functions",
        },
    ],
    ids=str,
)
def test_a_run_is_simulated(machine: Cluster, here: Here, given: dict[str, object]) -> None:
    settings = SETTINGS | given
    found = simulate(here.scenario("run", settings))
    twice = {name: 2 * seconds for name, seconds in MEASURED["tasks"].items()}
    slower = Here(machine, References(**MEASURED)._replace(tasks=twice))
    assert 0 < found.epoch < simulate(slower.scenario("run", settings)).epoch
    assert found.calls[-1].requests > 0


def test_each_request_waits_for_the_link(here: Here) -> None:
    """One task at a time: an epoch takes a second longer for each request where each takes one."""
    given = {**SETTINGS, "pipeline.mode": "no-pipe", "pipeline.intervals": 1, "tensor.backend": "local"}
    given["tensor.placement"] = "functions"
    epochs = [simulate(here.scenario("run", {**given, "tensor.latency": one})).epoch for one in (0.0, 1.0, 2.0)]
    requests = epochs[1] - epochs[0]
    assert requests == pytest.approx(round(requests), rel=0.02)
    assert epochs[2] - epochs[1] == pytest.approx(requests, rel=0.02)


@pytest.mark.parametrize("name", REFERENCES)
def test_tasks_of_the_reference_take_what_was_measured(machine: Cluster, here: Here, name: str) -> None:
    """On average; what is around tasks comes on top, which spans of the real clock do not have. Messages have nothing."""
    run, resource = REFERENCES[name]
    found = [task for task in simulate(here.scenario("run", RUNS[run])).tasks if task.resource == resource]
    around = 0.0 if name == "message" else machine.measured.at("task", part="around").median
    mean = sum(task.seconds for task in found) / sum(task.number for task in found)
    assert mean - around == pytest.approx(MEASURED["tasks"][name], rel=0.05)
