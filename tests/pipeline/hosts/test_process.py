"""The life of a host, where it ends in another way than by being told to."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from concurrent.futures import Future

import pytest
from support.pipelines import make_hosts_pipeline, messy_data

from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.hosts.process import live
from dorylax.pipeline.hosts.spec import HostSpec, spread


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
        spec = HostSpec(pipeline.spec(settings, cleanup), 0, spread(settings.servers, 1, None)[0])
        with pytest.raises(ArithmeticError, match="nobody to tell"):
            live(spec.to_bytes(), fails, gone=gone)
    with caplog.at_level(logging.DEBUG):
        gone.set_result(None)
    assert not caplog.records
