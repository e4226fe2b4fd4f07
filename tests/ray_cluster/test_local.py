"""A local cluster from the command line: started once, found, shown, ended, with nothing left of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.ports import unused_ports
from support.processes import members, until

from dorylax.cli import main
from dorylax.ray_cluster.config import RayConfig
from dorylax.ray_cluster.connection import connected
from dorylax.ray_cluster.record import Record, record_folder

pytest.importorskip("ray.cluster_utils")
pytestmark = [pytest.mark.timeout(120), pytest.mark.skipif(sys.platform != "linux", reason="local clusters need Linux")]


@pytest.fixture(autouse=True)
def _own(tmp_path: Path) -> Iterator[None]:
    """A record and a temporary folder of its own, which is empty in the end."""
    with pytest.MonkeyPatch.context() as patch:
        folder = Path(tempfile.mkdtemp(prefix="dx-"))  # short: paths of sockets are limited
        patch.setenv("DORYLAX_CACHE", str(tmp_path / "cache"))
        patch.delenv("RAY_ADDRESS", raising=False)
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(tempfile, "tempdir", str(folder))
        yield
    left = list(folder.iterdir())
    shutil.rmtree(folder)
    assert left == []


def _shown(capfd: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["cluster", *words]) == 0
    return capfd.readouterr().out


def _until_gone(record: Record) -> None:
    """Nothing is left of a cluster."""
    until(lambda: not members(record.process) and not Path(record.temporary).exists())
    assert not record_folder().exists() or list(record_folder().iterdir()) == []


def test_one_is_started_found_shown_and_ended(capfd: pytest.CaptureFixture[str]) -> None:
    assert "no cluster runs" in _shown(capfd, "status")
    assert _shown(capfd, "down") == "no cluster runs\n"
    (port,) = unused_ports(1)
    address = f"127.0.0.1:{port}"
    assert f"a cluster of 1 node runs at {address}." in _shown(
        capfd, "up", "--nodes", "1", "--cpus-per-node", "3", "--port", str(port)
    )
    record = Record.read(record_folder())
    assert record is not None
    try:
        assert _shown(capfd, "up").startswith(f"a cluster runs already, at {address}, and stays as it is: ")
        assert Record.read(record_folder()) == record
        with connected(RayConfig()) as ray:
            assert ray.get_runtime_context().gcs_address == address
        found = json.loads(_shown(capfd, "status", "--json"))
        assert {name: found[name] for name in ("schema", "running", "address", "jobs")} == {
            "schema": 1,
            "running": True,
            "address": address,
            "jobs": [],
        }
        head, node = found["nodes"]
        assert (head["head"], head["alive"], head["cpus"]) == (True, True, 0.0)
        assert (node["head"], node["alive"], node["cpus"], node["cpus_used"]) == (False, True, 3.0, 0.0)
        os.kill(node["process"], signal.SIGKILL)
        until(lambda: not Path(f"/proc/{node['process']}").exists())  # the keeper lets no zombie stay
        assert "│ 1    │ dead " in _shown(capfd, "status")
    finally:
        assert _shown(capfd, "down") == "the cluster has ended\n"
    _until_gone(record)


def test_who_kills_it_while_it_starts_leaves_nothing() -> None:
    command = subprocess.Popen([sys.executable, "-m", "dorylax", "cluster", "up", "--nodes", "1"])
    until(lambda: Record.read(record_folder()) is not None)
    record = Record.read(record_folder())
    until(lambda: len(members(record.process)) > 1)
    command.kill()
    command.wait()
    _until_gone(record)


def test_a_port_that_is_taken(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert main(["cluster", "up", "--port", str(port)]) == 1
    said = "error: the cluster could not be started: somebody listens at port {} already: give another --port\n"
    assert capfd.readouterr().err == said.format(port)
