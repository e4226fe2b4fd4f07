"""How many tensor tasks run at a time, on this machine and on a cluster."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any

import pytest
from support.pipelines import make_pipeline, messy_data

from dorylax.pipeline import tensor_calls
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.hosts.ray import cores_of_each
from dorylax.pipeline.resources import Resources, cores_of_host, cpus_of_workers, on_cluster, shares, usual_workers
from dorylax.ray_cluster.cluster import Node
from dorylax.ray_cluster.config import RayConfig
from dorylax.serverless.backends.inline import InlineBackend
from dorylax.serverless.config import TensorConfig
from dorylax.serverless.task import TensorResult, TensorTask


def test_shares() -> None:
    assert shares(7, 3) == [3, 2, 2]
    assert shares(4, 2) == [2, 2]
    # Each has one at least: a server without any would never begin a task.
    assert shares(1, 3) == shares(0, 3) == [1, 1, 1]


def test_cores_of_a_host() -> None:
    four = PipelineConfig(servers=4, hosts="processes")
    assert [cores_of_host(four, cores) for cores in (2, 4, 7, 8)] == [1, 1, 1, 2]
    assert cores_of_host(four.model_copy(update={"num_hosts": 2}), 4) == 2
    # On a cluster a host has cores of its own.
    assert cores_of_host(PipelineConfig(servers=4, hosts="ray"), 3) == 3


class Counted:
    """A backend that lets no more than so many tasks run at a time, and sees how many of each server are begun."""

    def __init__(self, room: int | None, inner: InlineBackend) -> None:
        self.room, self.inner = room, inner
        self.running, self.most = Counter[int](), Counter[int]()

    async def run(self, task: TensorTask, attempt: int) -> TensorResult:
        self.running[task.server] += 1
        self.most[task.server] = max(self.most[task.server], self.running[task.server])
        try:
            return await self.inner.run(task, attempt)
        finally:
            self.running[task.server] -= 1

    async def warm(self) -> int | None:
        return self.room

    def close(self) -> None:
        self.inner.close()


@pytest.mark.parametrize("autotune", [False, True])
@pytest.mark.parametrize(("room", "most"), [(3, {0: 2, 1: 1}), (None, {0: 4, 1: 4})])
def test_servers_begin_no_more_together_than_the_backend_has_room_for(
    monkeypatch: pytest.MonkeyPatch, room: int | None, most: dict[int, int], autotune: bool
) -> None:
    """More would wait behind others' calls, where the wait counts as theirs: into bills, and into what is late."""
    made: list[Counted] = []

    def counted(*arguments: Any, **options: Any) -> Counted:
        made.append(Counted(room, InlineBackend(*arguments, **options)))
        return made[-1]

    monkeypatch.setattr(tensor_calls, "InlineBackend", counted)
    tensor = TensorConfig(placement="functions", slots=4, autotune=autotune)
    config = PipelineConfig(servers=2, intervals=8, clock="virtual", tensor=tensor)
    pipeline, parts = make_pipeline("gcn", messy_data(), config)
    with contextlib.closing(pipeline.start(parts.params, None, parts.state)) as run:
        run.barrier(2)
        for _ in range(2):
            run.run_epoch()
    assert made[0].most == most


def config(**options: Any) -> PipelineConfig:
    tensor = TensorConfig(placement="functions", backend="ray", workers=options.pop("workers", None))
    return PipelineConfig(tensor=tensor, **options)


@pytest.mark.parametrize(
    ("options", "workers"),
    [
        ({}, 8),
        ({"ray": RayConfig(worker_cpus=3)}, 2),
        ({"ray": RayConfig(worker_cpus=0.5)}, 16),
        ({"ray": RayConfig(worker_cpus=0)}, 8),
        ({"ray": RayConfig(worker_cpus=32)}, 1),
        ({"servers": 3}, 8),
        ({"servers": 3, "hosts": "processes"}, 6),
        ({"servers": 3, "hosts": "ray", "ray": RayConfig(cpus=3)}, 3),  # of the 4 CPUs that 3 + 1 servers leave
        ({"servers": 3, "num_hosts": 2, "hosts": "ray", "ray": RayConfig(cpus=6)}, 3),
    ],
)
def test_half_of_a_cluster_is_the_workers(options: dict[str, Any], workers: int) -> None:
    assert usual_workers(config(**options), 16) == workers


@pytest.mark.parametrize(
    ("options", "cpus"),
    [
        ({"workers": 5}, 5.0),
        ({"workers": 5, "servers": 4}, 8.0),  # two for each server
        ({"workers": 1, "servers": 4, "ray": RayConfig(worker_cpus=0.5)}, 2.0),
    ],
)
def test_servers_leave_what_workers_take(options: dict[str, Any], cpus: float) -> None:
    assert cpus_of_workers(config(hosts="ray", **options)) == cpus
    assert cpus_of_workers(PipelineConfig(hosts="ray")) == 0


@pytest.mark.parametrize(("left", "cores"), [(0, 8), (1, 7), (4, 6), (8, 4), (13, 1), (100, 1)])
def test_servers_share_the_rest(left: float, cores: int) -> None:
    nodes = [Node(f"10.0.0.{number}", {"CPU": 8.0}) for number in (1, 2)]
    assert cores_of_each(nodes, 2, None, left=left) == cores


def test_what_is_on_no_cluster_needs_none() -> None:
    """Not even Ray."""
    given = PipelineConfig(servers=2)
    with on_cluster(given) as found:
        assert found is given


def test_workers_there_take_no_cores_here() -> None:
    assert Resources.of(config(servers=2, workers=3), None, 8) == (4, 2, 3)
    assert Resources.of_host(config(servers=2, hosts="ray", workers=4), 4) == (4, 2, 2)
