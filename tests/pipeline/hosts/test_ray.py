"""Runs with servers or workers on two nodes of a Ray cluster: the same numbers, clear errors, and nothing left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
from support.lost_hosts import lose
from support.pipelines import farthest, messy_data, running, train_pipeline, train_single
from support.processes import alive, until, workers_of
from support.ray_cluster import RayCluster

from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.hosts.launcher import HostError
from dorylax.pipeline.hosts.ray import Actors
from dorylax.pipeline.hosts.run import HostsRun
from dorylax.pipeline.run import PipelineRun
from dorylax.ray_cluster.connection import connected
from dorylax.serverless.backends.catalogue import BackendName
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
        until(lambda: actors(ray) == [])


def actors(ray: Any) -> list[Any]:
    """Those that live."""
    return [one for one in ray.state.actors().values() if one["State"] != "DEAD"]


def config(ray_cluster: RayCluster, **options: Any) -> PipelineConfig:
    of_ray = options.pop("ray", {})
    given = {"servers": 2, "intervals": 2, "hosts": "ray", "ray": ray_cluster.config(**{"timeout": 110.0, **of_ray})}
    return PipelineConfig(**given | options)


def train(run: PipelineRun, epochs: int) -> None:
    for _ in range(epochs):
        run.run_epoch()


def launched(run: PipelineRun) -> Actors:
    assert isinstance(run, HostsRun)
    assert isinstance(run._hosts._launched, Actors)
    return run._hosts._launched


def there(backend: BackendName, **given: Any) -> TensorConfig:
    """All heavy stages on workers."""
    return TensorConfig(placement="functions", backend=backend, **given)


RAY, LOCAL = there("ray", workers=2), there("local", workers=2)


@pytest.mark.parametrize(
    ("model", "dtype", "options"),
    [
        (
            "gcn",
            "float64",
            {
                "parameter_servers": 2,
                "ray": {"hosts_per_node": 2},
                "tensor": there("ray"),
            },
        ),
        pytest.param("sage", "float64", {}, marks=pytest.mark.core),
        ("gat", "float32", {"num_hosts": 2, "tensor": LOCAL, "parameter_servers": 2}),
        ("gat", "float64", {"hosts": "processes", "servers": 3, "num_hosts": 2, "tensor": RAY}),
        (
            "gcn",
            "float32",
            {
                "hosts": "inline",
                "tensor": there("ray", workers=3, streaming=True),
            },
        ),
    ],
    ids=["gcn-ray", "sage-inline", "gat-local", "gat-processes-ray", "gcn-here-ray"],
)
def test_synchronous_training_is_that_of_one_machine(
    ray_cluster: RayCluster, model: str, dtype: str, options: dict[str, Any]
) -> None:
    jax.config.update("jax_enable_x64", dtype == "float64")
    found = train_pipeline(model, DATA, EPOCHS, config(ray_cluster, **options), dtype=dtype)
    assert farthest(found, train_single(model, DATA, EPOCHS, dtype=dtype)) <= TOLERANCE[dtype]


def socket_folders(pid: int) -> set[Path]:
    """Folders of the sockets that a process listens on."""
    inodes = {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()}
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    paths = {Path(line[7]).parent for line in lines if len(line) > 7 and f"socket:[{line[6]}]" in inodes}
    return {path for path in paths if path.name.startswith("dorylax-")}


def test_a_host_that_is_killed_leaves_neither_workers_nor_sockets(ray_cluster: RayCluster) -> None:
    with running("gcn", DATA, config(ray_cluster, tensor=LOCAL, max_losses=0)) as run:
        run.run_epoch()
        pid = launched(run).pids[0]
        workers = set(workers_of(pid))
        folders = socket_folders(pid)
        assert workers
        assert len(folders) == 1
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(HostError, match=r"graph server 0 on node 127\.0\.0\.1: its worker process has died"):
            train(run, 3)
        until(lambda: not workers & {one.pid for one in alive()} and not any(folder.exists() for folder in folders))


def test_a_host_and_a_node_that_are_lost_cost_an_epoch_each_and_not_a_bit(ray_cluster: RayCluster) -> None:
    def losses(lose: Callable[[int, HostsRun], None]) -> list[float]:
        given = config(ray_cluster, servers=3, num_hosts=3, ray={"cpus": 2})
        with running("gcn", DATA, given) as run:
            assert isinstance(run, HostsRun)
            found = []
            for epoch in range(6):
                lose(epoch, run)
                found.append(run.run_epoch().loss)
            return found

    extra = [ray_cluster.add_node(4)]

    def lose(epoch: int, run: HostsRun) -> None:
        if epoch == 2:
            os.kill(launched(run).pids[1], signal.SIGKILL)
        elif epoch == 4:
            ray_cluster.remove_node(extra.pop())
            extra.append(ray_cluster.add_node(4))

    try:
        wanted = losses(lambda *_: None)
        assert losses(lose) == wanted
    finally:
        ray_cluster.remove_node(extra.pop())
        ray_cluster.settle()


def test_a_node_that_is_lost_with_hosts_and_workers(ray_cluster: RayCluster) -> None:
    """A cell of benchmarks/losses.py. Ray starts hosts and workers on the node until it knows that it is gone."""
    outcome = lose("async", "node, and another one", "stage", ray_cluster)
    assert outcome.wrong == []
    (loss,) = outcome.losses
    assert loss.repeats
    assert all("its node has died" in cause or "did not begin" in cause for cause in loss.causes)


def test_workers_of_a_host_that_is_killed_end(ray_cluster: RayCluster) -> None:
    given = config(ray_cluster, num_hosts=2, tensor=RAY, max_losses=0)
    with connected(ray_cluster.config()) as ray, running("gcn", DATA, given) as run:
        run.run_epoch()
        assert len(actors(ray)) == 4
        os.kill(launched(run).pids[0], signal.SIGKILL)
        until(lambda: len(actors(ray)) == 2)  # while the run goes on, as far as it knows
        with pytest.raises(HostError, match="graph server 0"):
            train(run, 3)


def test_a_command_that_is_killed_leaves_nothing(ray_cluster: RayCluster, tmp_path: Path) -> None:
    """Servers and workers on Ray, some of them stopped."""
    settings = ["data.size=tiny", "pipeline.servers=2", "pipeline.hosts=ray", "tensor.backend=ray", "tensor.workers=2"]
    words = [word for setting in (*settings, f"ray.address={ray_cluster.address}") for word in ("--set", setting)]
    command = [sys.executable, "-m", "dorylax", "train", "--model", "gcn", "--data", "communities", *words]
    command += ["--epochs", "1000000", "--out", str(tmp_path / "run")]
    environment = os.environ | {"TMPDIR": str(tmp_path / "temporary")}
    (tmp_path / "temporary").mkdir()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)
    metrics = tmp_path / "run" / "seed-0" / "metrics.jsonl"
    try:
        until(lambda: (metrics.is_file() and metrics.read_bytes().count(b"\n") > 1) or process.poll() is not None)
        assert process.poll() is None, process.stderr
        with connected(ray_cluster.config()) as ray:
            pids = [one["Pid"] for one in ray.state.actors().values() if one["State"] == "ALIVE"]
        assert len(pids) == 5  # three servers, two workers
        for pid in pids[::2]:
            os.kill(pid, signal.SIGSTOP)
    finally:
        process.kill()
        process.communicate()
    until(lambda: not {one.pid for one in alive()} & set(pids))
