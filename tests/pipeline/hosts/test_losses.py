"""What is lost while hosts train costs an epoch at most, and not a bit. The whole table: benchmarks/losses.py."""

from __future__ import annotations

import logging
import os
import re
import signal

import numpy as np
import pytest
from support.leftovers import children
from support.lost_hosts import hosts, lose
from support.pipelines import messy_data, running

from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.hosts.launcher import HostError

pytestmark = pytest.mark.timeout(120)

DATA = messy_data(60, 240)


@pytest.mark.parametrize(
    ("mode", "target", "phase"),
    [
        ("pipe", "graph server", "gather"),
        ("async", "graph server", "scatter"),
        ("pipe", "parameter server, one of two", "update"),
        pytest.param("async", "the only parameter server", "stage", marks=pytest.mark.core),  # real processes are lost
        ("pipe", "tensor worker", "stage"),
        ("async", "tensor worker that hangs", "gather"),
        ("async", "driver", "backward"),
        ("pipe", "stopped, and back", "gather"),
        ("pipe", "a second loss during recovery", "gather"),
        ("async", "disk full at a checkpoint", "gather"),
    ],
)
def test_a_loss(mode: str, target: str, phase: str) -> None:
    outcome = lose(mode, target, phase)
    assert outcome.wrong == []
    assert outcome.same is (True if mode == "pipe" else None)
    for loss in outcome.losses:
        assert loss.repeats
        assert loss.epoch in (2, 3, 4)


def test_what_is_lost_between_epochs_is_replaced_when_it_is_asked(caplog: pytest.LogCaptureFixture) -> None:
    def losses(*, lose: bool) -> list[float]:
        with running("gcn", DATA, PipelineConfig(servers=2, intervals=2, hosts="processes")) as run:
            found = [run.run_epoch().loss]
            if lose:
                os.kill(hosts()[1], signal.SIGKILL)
            counted = run.counters()
            found += [run.run_epoch().loss, run.run_epoch().loss]
            assert run.counters()["graph_tasks"] > counted["graph_tasks"] > 0
            assert [loss.servers for loss in run.losses] == [["graph server 1"]] * lose
            assert run.losses[0].repeats is False if lose else not run.losses
            return found

    assert losses(lose=True) == losses(lose=False)
    (record,) = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert re.fullmatch(
        r"graph server 1: its process was ended by SIGKILL: back within \d+\.\d s, it goes on with epoch 1",
        record.getMessage(),
    )


def test_a_run_that_loses_one_after_the_other_ends_with_a_line() -> None:
    before = children()
    with running("gcn", DATA, PipelineConfig(servers=2, hosts="processes", max_losses=1)) as run:
        run.run_epoch()
        os.kill(hosts()[0], signal.SIGKILL)
        run.counters()
        os.kill(hosts()[0], signal.SIGKILL)
        with pytest.raises(HostError, match=r"graph server \d: .* SIGKILL: that is more than 1 loss in a row.*resumed"):
            run.run_epoch()
    assert children() == before


def test_nothing_is_replaced_where_that_is_not_wanted() -> None:
    with running("gcn", DATA, PipelineConfig(servers=2, hosts="processes", max_losses=0)) as run:
        run.run_epoch()
        os.kill(hosts()[1], signal.SIGKILL)
        with pytest.raises(HostError, match=r"^graph server 1: its process was ended by SIGKILL$"):
            run.run_epoch()


def test_gradients_that_a_version_has_are_not_applied_again() -> None:
    """Under `per_interval` a version has some of the epoch that is run again."""
    options = {"mode": "async", "update": "per_interval", "staleness": 2, "freshness": 0.0}
    with running("gcn", DATA, PipelineConfig(servers=2, intervals=2, hosts="processes", **options)) as run:
        for epoch in range(8):
            if epoch in (2, 5):
                os.kill(hosts()[0], signal.SIGKILL)
            last = run.run_epoch()
        end = run.drain()
        while last.epoch + 1 < end:  # hosts may stand there already
            last = run.run_epoch()
        saved = run.save()
        assert saved is not None
        assert saved.record["version"] == 4 * end
        assert np.isfinite(last.loss)
        assert len(run.losses) == 2
