"""A Ray cluster of several nodes on this machine, which stays when the command that started it has ended.

One for each user and machine. A process of its own keeps it (`keeper`); its record says where it is (`record`).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any, NamedTuple, final

import dorylax
from dorylax.errors import DorylaxError
from dorylax.ray_cluster.config import RayConfig
from dorylax.ray_cluster.connection import connected, load_ray
from dorylax.ray_cluster.record import Record, clear_stale, record_folder, running
from dorylax.settings.errors import ConfigError

_GONE_SECONDS = 60.0


@final
class LocalClusterError(DorylaxError, RuntimeError):
    """The machine could not start the cluster, or end it."""


class Node(NamedTuple):
    """A node of the cluster.

    Attributes:
        node: Ray's id of it, in hexadecimal digits.
        process: whose end is its end.
        head: whether it is the head.
        alive: whether its process lives, and the cluster counts it among its nodes.
        cpus: that Ray counts.
        cpus_used: of these, those that are reserved for what runs there.
    """

    node: str
    process: int
    head: bool
    alive: bool
    cpus: float
    cpus_used: float


class Job(NamedTuple):
    """A program that is connected to the cluster: its command, its process, and since when, in seconds since 1970."""

    command: str
    process: int
    since: float


class Status(NamedTuple):
    """What is known of the cluster that runs.

    Attributes:
        address: HOST:PORT of its head.
        nodes: the head first.
        jobs: what is connected to it, but for who asks.
    """

    address: str
    nodes: tuple[Node, ...]
    jobs: tuple[Job, ...]


def up(nodes: int, cpus_per_node: int, port: int | None = None) -> tuple[str, bool]:
    """Starts the cluster, unless one runs.

    Args:
        nodes: beside the head, which runs nothing.
        cpus_per_node: that Ray counts on each, whatever the machine has.
        port: of the head; None: any that is free.

    Returns:
        HOST:PORT of its head, and whether it was started now.

    Raises:
        ConfigError: Ray is not installed; the system is not Linux; one is being started by another process.
        LocalClusterError: it could not be started; nothing is left of it.
    """
    load_ray()
    if sys.platform != "linux":
        raise ConfigError("a local cluster of several nodes needs Linux; ray.address=local gives a run one of one node")
    folder = record_folder()
    keeper = subprocess.Popen(
        [sys.executable, "-P", "-m", "dorylax.ray_cluster.keeper"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd="/",
        env=_environment(),
    )
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    asked = {"folder": str(folder), "nodes": nodes, "cpus_per_node": cpus_per_node, "port": port or 0}
    said: dict[str, Any] = {}
    with keeper.stdout:
        try:
            with contextlib.suppress(BrokenPipeError), keeper.stdin:
                keeper.stdin.write(json.dumps(asked).encode() + b"\n")
                keeper.stdin.flush()
                keeper.wait()  # not for the keeper, which is nobody's child
                said = json.loads(keeper.stdout.readline() or b"{}")
        except BaseException:  # it takes the end of its input as its own
            keeper.wait()
            keeper.stdout.read()
            raise
    if "address" in said:
        return said["address"], True
    if "held" in said:
        record = Record.read(folder)
        if record is None or record.address is None:
            raise ConfigError(f"{said['held']} is starting a cluster: wait for it, and see `dorylax cluster status`")
        return record.address, False
    raise LocalClusterError(f"the cluster could not be started: {said.get('error', 'its process was killed')}")


def _environment() -> dict[str, str]:
    """So that nodes import this dorylax, and nothing from the folder in which the command was given."""
    root = str(Path(dorylax.__file__).resolve().parent.parent)
    if root == sysconfig.get_path("purelib"):
        return dict(os.environ)
    others = os.environ.get("PYTHONPATH")
    return os.environ | {"PYTHONPATH": f"{root}{os.pathsep}{others}" if others else root}


def down() -> bool:
    """Ends the cluster, and removes all that it has left; also of one whose keeper was killed.

    Returns:
        Whether there was anything to end.

    Raises:
        LocalClusterError: it does not end.
    """
    if not record_folder().is_dir():
        return False
    end = time.monotonic() + _GONE_SECONDS
    found = False
    while True:
        stale = clear_stale()
        if stale is not None:
            return found or stale
        record = Record.read(record_folder())
        if record is not None and not found and record.kept:
            with contextlib.suppress(ProcessLookupError):
                os.kill(record.process, signal.SIGTERM)
            found = True
        if time.monotonic() > end:
            process = "unknown" if record is None else record.process
            raise LocalClusterError(
                f"the process that keeps the cluster ({process}) does not end: kill it, and try again"
            )
        time.sleep(0.05)


def status(timeout: float) -> Status | None:
    """What is known of the cluster; None where none runs.

    Args:
        timeout: seconds to wait for its answer.

    Raises:
        ConfigError: it starts still, its files are gone, or it does not answer.
    """
    record = running()
    if record is None:
        return None
    record.check()
    assert record.address is not None
    with connected(RayConfig(address=record.address, timeout=timeout)) as ray:
        # Not public, but so are all ways to ask that need no dashboard.
        from ray._private import state

        listed = {node["NodeID"]: node for node in ray.nodes()}
        free = state.available_resources_per_node()  # type: ignore[no-untyped-call]
        known = state.jobs()  # type: ignore[no-untyped-call]
        jobs = tuple(_job(one) for one in known if not one["IsDead"] and one["DriverPid"] != os.getpid())
    nodes = []
    for number, (node, process) in enumerate(record.nodes):
        found = listed.get(node, {"Alive": False, "Resources": {}})
        cpus = float(found["Resources"].get("CPU", 0.0))
        alive = bool(found["Alive"]) and Path(f"/proc/{process}").exists()  # Ray needs a minute to notice
        used = cpus - float(free.get(node, {}).get("CPU", 0.0)) if alive else 0.0
        nodes.append(Node(node, process, number == 0, alive, cpus, used))
    return Status(record.address, tuple(nodes), jobs)


def _job(entry: dict[str, Any]) -> Job:
    return Job(str(entry.get("Entrypoint", "")), int(entry["DriverPid"]), entry["StartTime"] / 1000)
