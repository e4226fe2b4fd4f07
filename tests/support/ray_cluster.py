"""A Ray cluster whose nodes can be lost and replaced: a head without CPUs, and nodes, on loopback, without a dashboard.

pytest-xdist gives all files that name the fixture `ray_cluster` to one process (`tests/conftest.py`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, final

import pytest

from dorylax.ray_cluster.config import RayConfig
from support.processes import below

CPUS = 4
"""Of each node; what Ray counts, whatever the machine has."""

_OBJECT_STORE_BYTES = 100 * 2**20
_OPTIONS = {"object_store_memory": _OBJECT_STORE_BYTES, "node_ip_address": "127.0.0.1"}
_WHERE = ("RAY_TMPDIR", "TMPDIR", "RAY_ADDRESS", "RAY_USAGE_STATS_ENABLED")
_GONE_SECONDS = 20.0
_SOON = {"health_check_period_ms": 1000}
"""A node that is gone is known to be after five of these; Ray's own are of three seconds."""


@final
class RayCluster:
    """A cluster; made by `ray_nodes`.

    Attributes:
        address: HOST:PORT of its head.
        logs: the folder of the logs of all that runs on it.
    """

    def __init__(self, cluster: Any, folder: Path) -> None:
        self._cluster, self._folder = cluster, folder
        # Ray's processes end with the thread that has started them (PR_SET_PDEATHSIG): it has to be one that stays.
        self._starter = ThreadPoolExecutor(1, "nodes of Ray")
        self.address = ""

    @property
    def logs(self) -> Path:
        """As above."""
        return Path(self._cluster.head_node.get_logs_dir_path())

    def config(self, **options: Any) -> RayConfig:
        """The section `ray` of a run on it."""
        return RayConfig(**{"address": self.address} | options)

    def add_node(self, cpus: int = CPUS, **options: Any) -> Any:
        """Adds a node, to be removed by `remove_node`."""

        def add() -> Any:
            with _started_in(self._folder):
                return self._cluster.add_node(num_cpus=cpus, **_OPTIONS, **options)

        node = self._starter.submit(add).result()
        self._cluster.wait_for_nodes()
        self.address = self._cluster.address
        return node

    def remove_node(self, node: Any) -> None:
        """Ends a node, and soon what runs on it. The cluster counts on it until it knows, and starts actors there."""
        self._cluster.remove_node(node, allow_graceful=False)

    def settle(self) -> None:
        """Waits until the cluster knows which nodes are gone."""
        there = {node.node_id for node in self._cluster.list_all_nodes()}
        end = time.monotonic() + _GONE_SECONDS
        while {one["NodeID"] for one in self._cluster.global_state.node_table() if one["Alive"]} > there:
            assert time.monotonic() < end, "the cluster does not notice that a node is gone"
            time.sleep(0.05)

    def lose_node_of(self, pid: int) -> None:
        """Ends the node of a process, with all that runs on it, at once, as a machine does that loses its power."""
        for node in self._cluster.worker_nodes:
            (raylet,) = (one.process.pid for one in node.all_processes["raylet"])
            its = below(raylet)
            if pid in its:
                for one in (raylet, *its):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(one, signal.SIGKILL)
                self.remove_node(node)
                return
        raise LookupError(f"no node has process {pid}")

    def complete(self, nodes: int) -> None:
        """Adds nodes until there are so many."""
        while len(self._cluster.worker_nodes) < nodes:
            self.add_node()

    def close(self) -> None:
        """Ends all nodes."""
        self._cluster.shutdown()
        self._starter.shutdown()

    def running(self, task: str) -> list[int]:
        """Processes that run a task."""
        return [process for process, command in _of(self._folder).items() if command.startswith(f"ray::{task}")]


@contextlib.contextmanager
def ray_nodes(nodes: int, **head: Any) -> Iterator[RayCluster]:
    """A cluster of so many nodes; at its end it leaves no process, file or shared memory.

    Args:
        nodes: beside the head.
        head: how that is started, as of Ray.
    """
    from ray import cluster_utils

    folder = Path(tempfile.mkdtemp(prefix="dx-ray-"))  # short: paths of sockets are limited
    (folder / "ray").mkdir()
    shared = _shared_memory()
    cluster = cluster_utils.Cluster()
    found = RayCluster(cluster, folder)
    try:
        found.add_node(0, include_dashboard=False, **head)
        found.complete(nodes)
        yield found
    finally:
        found.close()
        end = time.monotonic() + _GONE_SECONDS
        while _of(folder) and time.monotonic() < end:
            time.sleep(0.05)
        left = _of(folder)
        shutil.rmtree(folder)
    assert left == {}
    assert _shared_memory() <= shared


@contextlib.contextmanager
def _started_in(folder: Path) -> Iterator[None]:
    """What is started meanwhile writes into a folder. SIGTERM stays ours; JAX warns of forks."""
    from ray._private import utils

    kept = {name: os.environ.pop(name, None) for name in _WHERE}
    handle, utils.set_sigterm_handler = utils.set_sigterm_handler, lambda _: None
    os.environ |= {"RAY_TMPDIR": str(folder), "TMPDIR": str(folder), "RAY_USAGE_STATS_ENABLED": "0"}
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
            yield
    finally:
        utils.set_sigterm_handler = handle
        for name, value in kept.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _of(folder: Path) -> dict[int, str]:
    """Ray's processes that were told of the cluster's folder, and their command lines."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended, or is another user's
            command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            # Whatever tests have started has the environment of this process.
            told = str(folder).encode() in (path / "environ").read_bytes()
            if told and (command.startswith("ray::") or "/ray/" in command):
                found[int(path.name)] = command
    return found


def _shared_memory() -> set[str]:
    """Files of Ray's object stores."""
    folder = Path("/dev/shm")
    return {path.name for path in folder.glob("plasma*")} if folder.is_dir() else set()


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[RayCluster]:
    """The cluster of this process; it ends with the last test, and leaves no process, file or shared memory."""
    pytest.importorskip("ray.cluster_utils")
    with ray_nodes(2, _system_config=_SOON) as found:
        yield found
