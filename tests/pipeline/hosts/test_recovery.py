"""Recovery policies on processes: the bits of an undisturbed run, and which hosts run what."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from support.in_hosts import at_phase
from support.leftovers import children
from support.lost_hosts import hosts
from support.pipelines import messy_data, running

from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.hosts.coordinator import Coordinator
from dorylax.pipeline.hosts.run import HostsRun
from dorylax.settings.errors import ConfigError

pytestmark = pytest.mark.timeout(120)

DATA = messy_data(60, 240)
EPOCHS = 6
POLICIES = ("restart", "rerun", "reroute")


def config(recovery: str = "rerun") -> PipelineConfig:
    return PipelineConfig(servers=4, intervals=1, num_hosts=4, hosts="processes", recovery=recovery)


def kill(*places: int) -> None:
    for pid in [hosts()[place] for place in places]:
        os.kill(pid, signal.SIGKILL)


def train(recovery: str = "rerun", between: Callable[[int, HostsRun], Any] = lambda *_: None) -> tuple[Any, HostsRun]:
    """Loss and metrics of each epoch, and the last parameters; `between` is called before each epoch."""
    with running("gcn", DATA, config(recovery)) as run:
        assert isinstance(run, HostsRun)
        run.barrier(EPOCHS)
        found = []
        for epoch in range(EPOCHS):
            between(epoch, run)
            last = run.run_epoch()
            found.append((last.loss, [(one.epoch, one.server) for one in last.servers]))
        return (found, [np.array(leaf) for leaf in jax.tree.leaves(last.params)]), run


_UNDISTURBED: list[Any] = []


def check(found: Any) -> None:
    """Compare bit for bit with the undisturbed run."""
    if not _UNDISTURBED:
        _UNDISTURBED.append(train()[0])
    (wanted,) = _UNDISTURBED
    assert found[0] == wanted[0]
    assert all(map(np.array_equal, found[1], wanted[1]))


def test_a_loss_between_epochs_restarts_from_the_checkpoint_or_from_the_start() -> None:
    before = children()

    def between(epoch: int, run: HostsRun) -> None:
        if epoch == 3:
            assert run.save() is not None
        if epoch in (2, 5):
            kill(1)
        if epoch == 5:  # a checkpoint now is of the epochs that the driver has, not of those in the last one
            saved = run.save()
            assert saved is not None
            assert saved.record["version"] == 5

    found, run = train("restart", between)
    check(found)
    assert [loss.epoch for loss in run.losses] == [0, 3]
    assert children() == before


def test_lost_servers_move_to_remaining_hosts_and_return() -> None:
    before = children()
    assigned: dict[int, Any] = {}

    def between(epoch: int, run: HostsRun) -> None:
        fleet = run._hosts._fleet
        assigned[epoch] = fleet.assigned
        if epoch == 2:
            kill(1, 2)
        if epoch == 4:
            end = time.monotonic() + 60
            while len(run._hosts._fleet.alive) < 4 and time.monotonic() < end:
                run.counters()
                time.sleep(0.05)

    found, _ = train("reroute", between)
    check(found)
    assert assigned[3][1] == assigned[3][2] == ()
    assert sorted(sum(assigned[3], ())) == sorted(sum(assigned[0], ()))
    assert assigned[5] == assigned[0] != assigned[3]
    assert children() == before


@pytest.mark.exhaustive
@pytest.mark.parametrize("recovery", POLICIES)
@pytest.mark.parametrize("phase", ["gather", "stage", "scatter", "backward", "update"])
def test_a_loss_within_an_epoch(recovery: str, phase: str, tmp_path: Path) -> None:
    with at_phase(phase, 2, tmp_path, lambda pid: os.kill(pid, signal.SIGKILL)):
        found, run = train(recovery)
    check(found)
    (loss,) = run.losses
    assert (loss.epoch, loss.repeats) == (0 if recovery == "restart" else 2, True)


@pytest.mark.parametrize(
    "recovery", ["reroute", *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("restart", "rerun"))]
)
def test_a_host_with_a_notice_is_left_without_a_loss(recovery: str, tmp_path: Path) -> None:
    before = children()
    first: list[int] = []

    def between(epoch: int, _: HostsRun) -> None:
        first[:] = first or hosts()
        if epoch == 4:
            assert first[0] not in hosts()

    with at_phase("gather", 2, tmp_path, lambda pid: os.kill(pid, signal.SIGTERM)):
        found, run = train(recovery, between)
    check(found)
    assert run.losses == []
    assert children() == before


@pytest.mark.exhaustive
@pytest.mark.parametrize("recovery", POLICIES)
def test_a_second_loss_during_recovery(recovery: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assemble = Coordinator._assemble

    async def loses(hosts_: Coordinator) -> None:
        if hosts_.generation == 0:
            kill(2)
        await assemble(hosts_)

    monkeypatch.setattr(Coordinator, "_assemble", loses)
    found, _ = train(recovery, lambda epoch, _: kill(1) if epoch == 2 else None)
    check(found)


def test_a_run_within_one_process_has_no_policy() -> None:
    with pytest.raises(ConfigError, match=r"^pipeline\.recovery = reroute needs pipeline\.hosts=processes or ray"):
        PipelineConfig(recovery="reroute")
