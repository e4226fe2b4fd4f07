"""The life of a host, where it ends in another way than by being told to."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from concurrent.futures import Future

import pytest
from support.pipelines import make_hosts_pipeline, messy_data

from dorylax.machine import CORES
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.hosts.process import live
from dorylax.pipeline.hosts.spec import HostSpec


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    """A host's process is its own: `live` sets the level of what it logs for good."""
    logger = logging.getLogger("dorylax")
    before = logger.level
    yield
    logger.setLevel(before)


def test_a_driver_that_goes_after_its_host_has_failed_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    settings = PipelineConfig(servers=1, intervals=1, hosts="processes")
    pipeline, _ = make_hosts_pipeline("gcn", messy_data(), settings)
    gone = Future[None]()

    def fails(_: str) -> None:
        raise ArithmeticError("nobody to tell")

    with contextlib.ExitStack() as cleanup:
        spec = HostSpec(pipeline.spec(settings, cleanup), 0, "graph server 0")
        with pytest.raises(ArithmeticError, match="nobody to tell"):
            live(spec.to_bytes(), fails, gone=gone)
    with caplog.at_level(logging.DEBUG):
        gone.set_result(None)
    assert not caplog.records


@pytest.mark.parametrize(("cores", "one_core"), [("1", True), ("3", True), ("4", False)])
def test_the_clock_knows_when_a_host_has_one_core(monkeypatch: pytest.MonkeyPatch, cores: str, one_core: bool) -> None:
    settings = PipelineConfig(servers=2, intervals=2, hosts="processes")
    pipeline, _ = make_hosts_pipeline("gcn", messy_data(), settings)
    made: list[bool] = []

    def clock(*, one_core: bool) -> None:
        made.append(one_core)
        raise ArithmeticError("that is all")

    monkeypatch.setenv(CORES, cores)
    monkeypatch.setattr("dorylax.clock.RealClock", clock)
    with contextlib.ExitStack() as cleanup:
        spec = HostSpec(pipeline.spec(settings, cleanup), 0, "graph server 0")
        with pytest.raises(ArithmeticError, match="that is all"):
            live(spec.to_bytes(), lambda _: None)
    assert made == [one_core]
