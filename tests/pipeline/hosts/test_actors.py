"""Hosts as actors: what is said of one that fails, where their logs are, and that closing them takes a bounded time."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.in_hosts import fail_at, first_in_hosts, refuse
from support.processes import until
from support.ray_cluster import RayCluster

from dorylax.cli import main
from dorylax.pipeline.hosts import ray as hosts
from dorylax.pipeline.hosts.launcher import HostError
from dorylax.pipeline.hosts.ray import Actors, asked
from dorylax.ray_cluster.config import RayConfig

pytestmark = pytest.mark.timeout(120)


def command(cluster: RayCluster, out: Path, *more: str) -> list[str]:
    """A short run with two graph servers on a cluster."""
    settings = ["data.size=tiny", "pipeline.servers=2", "pipeline.intervals=2", "pipeline.hosts=ray"]
    settings += [f"ray.address={cluster.address}", *more]
    words = [word for setting in settings for word in ("--set", setting)]
    return ["train", "--data", "communities", "--model", "gcn", "--epochs", "2", "--out", str(out), *words]


def test_an_actor_s_own_error_is_one_line_that_says_where_and_its_node_has_its_log(
    ray_cluster: RayCluster, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "dorylax")
    with first_in_hosts(fail_at, 0, 1):
        assert main(command(ray_cluster, tmp_path / "out")) == 1
    *_, line = capfd.readouterr().err.splitlines()
    assert line == "error: graph server 0, interval 0, epoch 1, GA on node 127.0.0.1: ArithmeticError: no such row"
    begins = (
        "graph server 1: DEBUG:dorylax.pipeline.host:graph server 1, interval 3, epoch 0, with weights of version 0"
    )
    until(lambda: any(begins in path.read_text() for path in ray_cluster.logs.glob("worker-*.err")))


def test_what_is_not_possible_is_told_from_what_failed(
    ray_cluster: RayCluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """All hosts fail at once, and one line is written."""
    with first_in_hosts(refuse):
        assert main(command(ray_cluster, tmp_path / "out")) == 2
    (line,) = capfd.readouterr().err.splitlines()
    server, _, text = line.partition(" on node 127.0.0.1: tensor.host = ")
    assert server in {
        f"error: {kind} server {number}" for kind, number in (("graph", 0), ("graph", 1), ("parameter", 0))
    }
    assert text == "192.0.2.1 must be an address of this machine"


def test_a_cluster_without_room_is_one_line(
    ray_cluster: RayCluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(command(ray_cluster, tmp_path / "out", "ray.hosts_per_node=1", "ray.timeout=2")) == 1
    (line,) = capfd.readouterr().err.splitlines()
    said = "error: the Ray cluster has no room for 3 servers within 2 s (ray.timeout): each needs 1 CPU, on 3 nodes ("
    assert line.startswith(said)


def spec(name: str) -> Any:
    return SimpleNamespace(name=name, to_bytes=lambda: b"")


def unasked(number: int, error: HostError) -> None:
    raise AssertionError((number, error))


def test_of_hosts_that_end_because_one_could_not_begin_nothing_is_said(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Future[Any](), Future[Any]()
    first.set_result(("", {"text": "it cannot"}))
    placed = Future[Any]()
    placed.set_result(("10.0.0.1", 7, None))

    def method(answer: Future[Any]) -> Any:
        return SimpleNamespace(remote=lambda *_: SimpleNamespace(future=lambda: answer))

    def actor(begun: Future[Any]) -> Any:
        return SimpleNamespace(place=method(placed), ask=method(begun))

    made = iter([actor(first), actor(second)])
    monkeypatch.setattr(hosts, "make_actor", lambda *_, **__: next(made))
    strategies = SimpleNamespace(PlacementGroupSchedulingStrategy=lambda *_, **__: None)
    ray = SimpleNamespace(util=SimpleNamespace(scheduling_strategies=strategies))

    async def life() -> None:
        config = RayConfig(timeout=10.0)
        actors = Actors(ray, config, [spec("graph server 0"), spec("graph server 1")], unasked)
        actors._ask = asked(config, 2, 1)
        with pytest.raises(HostError, match=r"^graph server 0 on node 10\.0\.0\.1: it cannot$"):
            await actors.start([0, 1])
        second.set_exception(RuntimeError("killed"))
        await asyncio.sleep(0.01)

    asyncio.run(life())
    gc.collect()
    assert not [record for record in caplog.records if record.name == "asyncio"]  # of exceptions that nobody took


def test_another_loss_while_there_is_no_room_loses_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[Any] = []
    started: list[list[int]] = []
    room = asyncio.Event()

    async def start(_: Actors, numbers: Sequence[int]) -> None:
        started.append(list(numbers))

    monkeypatch.setattr(Actors, "start", start)
    monkeypatch.setattr(Actors, "_room", lambda *_: room.wait())

    async def life() -> None:
        actors = Actors(SimpleNamespace(kill=killed.append), RayConfig(), [spec("0"), spec("1")], unasked)
        actors._actors = {0: "zero", 1: "one"}
        waiting = asyncio.ensure_future(actors.replace([0]))
        await asyncio.sleep(0)
        waiting.cancel()
        room.set()
        await actors.replace([0, 1])

    asyncio.run(life())
    assert (killed, started) == (["zero", "one"], [[0, 1]])


def test_a_head_that_is_gone_keeps_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray then waits for a minute, and ends the process."""
    monkeypatch.setattr(hosts, "_GONE_SECONDS", 0.05)
    answered = threading.Event()
    killed: list[Any] = []
    ray = SimpleNamespace(
        is_initialized=lambda: True,
        kill=killed.append,
        wait=lambda *_, **__: ([], []),
        util=SimpleNamespace(remove_placement_group=lambda _: answered.wait()),
    )

    async def life() -> None:
        actors = Actors(ray, RayConfig(), [spec("graph server 0")], unasked)
        actors._actors, actors._group = {0: "actor"}, "group"
        actors.close()
        actors.close()

    try:
        asyncio.run(asyncio.wait_for(life(), 10))
    finally:
        answered.set()
    assert killed == ["actor"]
