"""One Ray cluster for all tests of a process: a head without CPUs and two nodes, on loopback, without a dashboard.

pytest-xdist gives all files that name the fixture to one process (`tests/conftest.py`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

import pytest

from dorylax.ray_cluster.config import RayConfig

CPUS = 4
"""Of each of the two nodes; what Ray counts, whatever the machine has."""

_OBJECT_STORE_BYTES = 100 * 2**20
_OPTIONS = {"object_store_memory": _OBJECT_STORE_BYTES, "node_ip_address": "127.0.0.1"}
_GONE_SECONDS = 20.0


@final
class RayCluster:
    """A cluster; made by `ray_cluster`.

    Attributes:
        address: HOST:PORT of its head.
        logs: the folder of the logs of all that runs on it.
    """

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self.address: str = cluster.address
        self.logs = Path(cluster.head_node.get_logs_dir_path())

    def config(self, **options: Any) -> RayConfig:
        """The section `ray` of a run on it."""
        return RayConfig(**{"address": self.address} | options)

    def add_node(self, cpus: int = CPUS, **options: Any) -> Any:
        """Adds a node, to be removed by `remove_node`."""
        with _forks():
            node = self._cluster.add_node(num_cpus=cpus, **_OPTIONS, **options)
        self._cluster.wait_for_nodes()
        return node

    def remove_node(self, node: Any) -> None:
        """Kills a node with all that runs on it."""
        self._cluster.remove_node(node, allow_graceful=False)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[RayCluster]:
    """The cluster of this process; it ends with the last test, and leaves no process, file or shared memory."""
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    folder = Path(tempfile.mkdtemp(prefix="dx-ray-"))  # short: paths of sockets are limited
    (folder / "ray").mkdir()
    kept = {name: os.environ.get(name) for name in ("RAY_TMPDIR", "RAY_ADDRESS", "RAY_USAGE_STATS_ENABLED")}
    os.environ |= {"RAY_TMPDIR": str(folder), "RAY_USAGE_STATS_ENABLED": "0"}
    os.environ.pop("RAY_ADDRESS", None)
    shared = _shared_memory()
    cluster = cluster_utils.Cluster()
    try:
        for cpus in (0, CPUS, CPUS):
            with _forks():
                cluster.add_node(num_cpus=cpus, **({} if cpus else {"include_dashboard": False}), **_OPTIONS)
        cluster.wait_for_nodes()
        yield RayCluster(cluster)
    finally:
        cluster.shutdown()
        for name, value in kept.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        end = time.monotonic() + _GONE_SECONDS
        while _of(folder) and time.monotonic() < end:
            time.sleep(0.05)
        left = _of(folder)
        shutil.rmtree(folder)
    assert left == []
    assert _shared_memory() <= shared


@contextlib.contextmanager
def _forks() -> Iterator[None]:
    """JAX does not warn of forks, by which Ray starts programs."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
        yield


def _of(folder: Path) -> list[str]:
    """Command lines of Ray's processes that were told of the cluster's folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended, or is another user's
            command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            # Whatever tests have started has the environment of this process.
            told = str(folder).encode() in (path / "environ").read_bytes()
            if told and (command.startswith("ray::") or "/ray/" in command):
                found.append(command)
    return found


def _shared_memory() -> set[str]:
    """Files of Ray's object stores."""
    folder = Path("/dev/shm")
    return {path.name for path in folder.glob("plasma*")} if folder.is_dir() else set()
