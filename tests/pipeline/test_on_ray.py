"""How many workers a run has on a cluster, and what is left for its servers."""

from __future__ import annotations

from typing import Any

import pytest

from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.hosts.ray import cores_of_each
from dorylax.pipeline.resources import Resources, cpus_of_workers, on_cluster, usual_workers
from dorylax.ray_cluster.cluster import Node
from dorylax.ray_cluster.config import RayConfig
from dorylax.serverless.config import TensorConfig


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
