"""Runs whose hosts are actors on two nodes of a Ray cluster: the same numbers, clear errors, and nothing left."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
from support.pipelines import farthest, messy_data, running, train_pipeline, train_single
from support.ray_cluster import CPUS, RayCluster

from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.hosts.launcher import HostError
from dorylax.pipeline.hosts.ray import Actors
from dorylax.pipeline.hosts.run import HostsRun
from dorylax.pipeline.run import PipelineRun
from dorylax.ray_cluster.connection import connected
from dorylax.serverless.config import TensorConfig

pytestmark = pytest.mark.timeout(120)

DATA = messy_data(60, 240)
EPOCHS = 3
TOLERANCE = {"float64": 1e-9, "float32": 1e-4}


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ray_cluster: RayCluster) -> Iterator[None]:
    """No actor, no placement group, no file."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    yield
    jax.config.update("jax_enable_x64", False)
    assert not list(tmp_path.glob("dorylax-*"))
    with connected(ray_cluster.config()) as ray:
        assert not [one for one in ray.util.placement_group_table().values() if one["state"] != "REMOVED"]
        assert hosts(ray) == []


def hosts(ray: Any) -> list[Any]:
    """Actors that live."""
    return [one for one in ray.state.actors().values() if one["State"] != "DEAD"]


def config(ray_cluster: RayCluster, **options: Any) -> PipelineConfig:
    of_ray = options.pop("ray", {})
    given = {"servers": 2, "intervals": 2, "hosts": "ray", "ray": ray_cluster.config(**of_ray)}
    return PipelineConfig(**given | options)


def launched(run: PipelineRun) -> Actors:
    assert isinstance(run, HostsRun)
    assert isinstance(run._launched, Actors)
    return run._launched


@pytest.mark.parametrize(
    ("model", "dtype", "options"),
    [
        ("gcn", "float64", {"servers": 4, "num_hosts": 4, "ray": {"hosts_per_node": 2}}),
        ("gat", "float32", {"parameter_servers": 2}),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_synchronous_training_is_that_of_one_machine(
    ray_cluster: RayCluster, model: str, dtype: str, options: dict[str, Any]
) -> None:
    jax.config.update("jax_enable_x64", dtype == "float64")
    found = train_pipeline(model, DATA, EPOCHS, config(ray_cluster, **options), dtype=dtype)
    assert farthest(found, train_single(model, DATA, EPOCHS, dtype=dtype)) <= TOLERANCE[dtype]
