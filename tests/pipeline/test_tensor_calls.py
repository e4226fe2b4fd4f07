"""Backends that cannot be made leave nothing behind, and say what to change."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from support.leftovers import nothing_left

from dorylax.clock import RealClock
from dorylax.net.server import DataServer, Endpoint
from dorylax.pipeline import invokers
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.resources import Resources
from dorylax.pipeline.tensor_calls import make_backend
from dorylax.serverless.config import TensorConfig
from dorylax.settings.errors import ConfigError


def make(tensor: TensorConfig) -> None:
    prepared: Any = SimpleNamespace(artefacts=SimpleNamespace(stages={}, artefacts={}))
    with RealClock() as clock:
        config = PipelineConfig(tensor=tensor)
        make_backend(config, Resources(1, 1, 1), prepared, functions={}, clock=clock, times=None)


class Sandboxes:
    """None, which may be closed."""

    def __init__(self) -> None:
        self.closed = 0

    async def invoke(self, event: bytes, timeout: float) -> bytes:
        raise AssertionError

    async def warm(self) -> None: ...

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def sandboxes(monkeypatch: pytest.MonkeyPatch) -> Sandboxes:
    found = Sandboxes()
    monkeypatch.setattr(invokers, "make_invoker", lambda *_: found)
    return found


def test_what_was_begun_is_closed(sandboxes: Sandboxes, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(data: DataServer, name: str) -> Endpoint:
        raise RuntimeError(f"no {name}")

    monkeypatch.setattr(DataServer, "open", refuse)
    with nothing_left(), pytest.raises(RuntimeError, match="no graph 0"):
        make(TensorConfig(backend="local"))
    assert sandboxes.closed == 1


def test_endpoints_are_closed_where_no_sandboxes_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DORYLAX_RIE", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with nothing_left(), pytest.raises(ConfigError, match="set DORYLAX_RIE"):
        make(TensorConfig(backend="emulator"))


def test_a_host_that_is_another_machine_s(sandboxes: Sandboxes) -> None:
    """Of documentation (RFC 5737)."""
    message = r"^tensor\.host = 192\.0\.2\.7 must be an address of this machine on which it can listen: "
    with nothing_left(), pytest.raises(ConfigError, match=message):
        make(TensorConfig(backend="aws", host="192.0.2.7"))
    assert sandboxes.closed == 1
