"""The connection to a cluster: which one is found, what goes wrong in one line, and what is left as it was."""

from __future__ import annotations

import importlib.metadata
import logging
import os
import signal
import socket
import subprocess
import sys
from typing import Any

import pytest
from support.ray_cluster import RayCluster

from dorylax.ray_cluster.config import RayConfig
from dorylax.ray_cluster.connection import connected
from dorylax.settings.errors import ConfigError

pytestmark = pytest.mark.timeout(120)


def refusal(config: RayConfig) -> str:
    with pytest.raises(ConfigError) as caught, connected(config):
        pass
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_it_is_made_and_ended(ray_cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    def own() -> list[Any]:
        found = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
        return [*found, sys.excepthook, os.environ.get("PYTHONBREAKPOINT"), os.environ.get("RAY_AUTH_MODE")]

    before = own()
    with connected(ray_cluster.config()) as module:
        assert module is ray
        assert sum(node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]) == 8
        assert own() == before
        with connected(RayConfig(address="127.0.0.1:1")):  # connected already
            pass
        assert ray.is_initialized()
    assert not ray.is_initialized()
    assert own() == before
    monkeypatch.setenv("RAY_ADDRESS", ray_cluster.address)
    with connected(RayConfig()):
        assert ray.is_initialized()


def test_the_cluster_of_this_machine_is_found(ray_cluster: RayCluster) -> None:
    with connected(RayConfig()) as ray:
        assert ray.get_runtime_context().gcs_address == ray_cluster.address


def test_without_a_cluster_none_is_started(ray_cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: Any) -> None:
        raise ConnectionError

    monkeypatch.setattr("ray._private.services.get_ray_address_from_environment", none)
    assert "is null, RAY_ADDRESS is not set, and no Ray cluster runs on this machine" in refusal(RayConfig())
    monkeypatch.setenv("RAY_ADDRESS", "local")
    assert "RAY_ADDRESS = local starts no cluster" in refusal(RayConfig())


def test_an_address_where_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    text = refusal(RayConfig(address=address))
    assert text.startswith(f"ray.address = {address} cannot be reached (")


def test_an_address_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        text = refusal(RayConfig(address=address, timeout=0.5))
    assert "listens, but did not answer as a Ray cluster within 0.5 s" in text


def test_ray_that_is_missing_or_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.9.1")
    assert refusal(RayConfig()) == 'Ray must be 2.50 or newer, got 2.9.1: pip install "dorylax[ray]"'

    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert refusal(RayConfig()).startswith('Ray is not installed: pip install "dorylax[ray]"')


def test_another_version_of_ray_or_python(ray_cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray._private.utils.compute_version_info", lambda: ("2.50.0", "3.12.1"))
    text = refusal(ray_cluster.config())
    assert "must be a node of the cluster with the same versions of Python and Ray" in text
    assert "Ray: 2.50.0 Python: 3.12.1" in text


def test_hooks_that_ray_sets_when_it_is_loaded_are_put_back(ray_cluster: RayCluster) -> None:
    """In a process that has not loaded it yet."""
    code = (
        "import sys, faulthandler; from dorylax.ray_cluster.config import RayConfig\n"
        "from dorylax.ray_cluster.connection import connected\n"
        f"with connected(RayConfig(address={ray_cluster.address!r})) as ray:\n"
        "    print(sys.excepthook is sys.__excepthook__, faulthandler.is_enabled(), ray.is_initialized())"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert (found.stdout, found.stderr) == ("True False True\n", "")


def test_what_ray_warns_of_is_not_shown(ray_cluster: RayCluster, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), connected(ray_cluster.config()):
        pass
    assert not [record for record in caplog.records if record.name.startswith("ray")]
