"""One Ray cluster for all tests of a process: a head without CPUs and two nodes.

pytest-xdist gives all files that name the fixture to one process (`tests/conftest.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from harness.ray_nodes import CPUS, ray_nodes
from harness.ray_nodes import RayNodes as RayCluster

_SOON = {"health_check_period_ms": 1000}
"""A node that is gone is known to be after five of these; Ray's own are of three seconds."""

__all__ = ["CPUS", "RayCluster", "ray_cluster"]


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[RayCluster]:
    """The cluster of this process; it ends with the last test, and leaves no process, file or shared memory."""
    pytest.importorskip("ray.cluster_utils")
    with ray_nodes(2, _system_config=_SOON) as found:
        yield found
