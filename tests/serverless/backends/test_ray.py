"""Workers on a Ray cluster: they answer, die, hang, are replaced, find no room, and leave nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.local_runs import Run, check, config, running, undisturbed_run
from support.pipelines import compiled_once
from support.pools import LONG, invoke
from support.processes import alive, until
from support.ray_cluster import RayCluster

from dorylax.net.errors import TaskFailedError
from dorylax.ray_cluster import cluster
from dorylax.ray_cluster.connection import connected
from dorylax.serverless.backends.base import Invoker
from dorylax.serverless.backends.pool import Pool
from dorylax.serverless.backends.ray.pool import ray_workers

pytestmark = pytest.mark.timeout(120)

Pools = Callable[..., Pool]


def living(*pids: int) -> dict[int, int]:
    """Those of some processes that live, and their parents."""
    return {one.pid: one.parent for one in alive() if one.pid in pids}


@pytest.fixture
def pools(servers: Any, ray_cluster: RayCluster) -> Iterator[Pools]:
    """Makes pools, which share one connection to the cluster and leave no process there."""
    made: list[Pool] = []

    def make(workers: int = 1, **options: Any) -> Pool:
        made.append(ray_workers(servers.keys, ray_cluster.config(**options), workers=workers))
        return made[-1]

    with connected(ray_cluster.config()) as ray:
        yield make
        for pool in made:
            pool.close()
        until(lambda: not [one for one in ray.state.actors().values() if one["State"] != "DEAD"])


def failure(pool: Pool, event: bytes, timeout: float = LONG) -> TaskFailedError:
    with pytest.raises(TaskFailedError) as caught:
        asyncio.run(pool.invoke(event, timeout))
    assert "\n" not in str(caught.value)
    return caught.value


def test_they_are_spread_and_each_answers_one_event_at_a_time(
    servers: Any, pools: Pools, check_rows: Callable[..., None]
) -> None:
    arrived = [servers.offer(interval) for interval in range(1, 6)]
    pool = pools(2)
    assert isinstance(pool, Invoker)
    assert pool.pids == ()

    async def all_events() -> list[bytes]:
        await pool.warm()
        return await asyncio.gather(*(pool.invoke(servers.event(k), LONG) for k in range(1, 6)))

    answers = asyncio.run(all_events())
    assert sum(b'"cold":true' in answer.replace(b" ", b"") for answer in answers) == 2
    for rows in arrived:
        check_rows(rows.get(timeout=LONG))
    assert len(set(living(*pool.pids).values())) == 2  # of two nodes


def test_one_that_is_killed_or_hangs_while_it_computes_fails_the_call_and_is_replaced(
    servers: Any, pools: Pools
) -> None:
    servers.offer()
    pool = pools()
    invoke(pool, servers.event())
    (pid,) = pool.pids
    os.kill(pid, signal.SIGSTOP)
    error = failure(pool, servers.event(), 0.5)
    assert error.reason == "timeout"
    assert str(error).startswith(f"worker process {pid} on node 127.0.0.1 was ended: computing took over 0.5 s")
    assert invoke(pool, servers.event()).error is None
    (other,) = pool.pids

    os.kill(other, signal.SIGSTOP)

    async def killed_meanwhile() -> TaskFailedError:
        call = asyncio.ensure_future(pool.invoke(servers.event(), LONG))
        await asyncio.sleep(0.3)
        os.kill(other, signal.SIGKILL)
        with pytest.raises(TaskFailedError) as caught:
            await call
        return caught.value

    error = asyncio.run(killed_meanwhile())
    assert error.reason == "died"
    assert f"worker process {other} on node 127.0.0.1 died while computing: " in str(error)


def test_where_there_is_no_room_the_call_is_throttled(servers: Any, pools: Pools) -> None:
    """Others go on, and one that is there later finds room."""
    servers.offer()
    first, second = pools(1, worker_cpus=4), pools(2, worker_cpus=4, timeout=8)
    invoke(first, servers.event())

    def warm(workers: int) -> bool:
        """Whether so many of the second's have started; on a busy machine that may take longer than it waits."""
        with contextlib.suppress(TaskFailedError):
            asyncio.run(second.warm())
        return len(second.pids) == workers

    with pytest.raises(TaskFailedError) as caught:
        asyncio.run(second.warm())
    assert caught.value.reason == "throttled"
    text = str(caught.value)
    assert text.startswith("the Ray cluster has started no worker within 8 s (ray.timeout): each needs 4 CPUs")
    assert "127.0.0.1 with 0 CPUs" in text
    until(lambda: warm(1))

    def answered() -> bool:
        """Whether the one that has started answers; a call that falls to the other is throttled again."""
        with contextlib.suppress(TaskFailedError):
            return invoke(second, servers.event()).error is None
        return False

    until(answered)
    first.close()
    until(lambda: warm(2))


def test_a_node_that_cannot_work_is_told(servers: Any, pools: Pools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "__version__", "0.0")
    error = failure(pools(), servers.event())
    assert error.reason == "refused"
    assert str(error).endswith(", the driver 0.0: install the same")
    monkeypatch.undo()
    monkeypatch.setattr("dorylax.serverless.backends.ray.actor._WORKER", "dorylax.nowhere:Worker")
    assert "cannot work: its node cannot import dorylax: No module named" in str(failure(pools(), servers.event()))


def test_close_ends_what_has_stopped_and_fails_what_runs(servers: Any, pools: Pools) -> None:
    pool = pools(2)

    async def close_meanwhile() -> list[Any]:
        await pool.warm()
        pids.extend(pool.pids)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        calls = [asyncio.ensure_future(pool.invoke(servers.event(), LONG)) for _ in range(3)]
        await asyncio.sleep(0.1)
        begin = time.monotonic()
        pool.close()
        assert time.monotonic() - begin < 5
        return await asyncio.gather(*calls, return_exceptions=True)

    pids: list[int] = []
    assert [error.reason for error in asyncio.run(close_meanwhile())] == ["died", "died", "refused"]
    pool.close()
    assert failure(pool, b"", 1.0).reason == "refused"
    until(lambda: not living(*pids))  # Ray ends what is stopped after 5 s


def test_workers_that_die_hang_and_are_lost_with_their_node_change_not_a_bit(ray_cluster: RayCluster) -> None:
    def workers(found: Run) -> Pool:
        pool = found.backend._invoker
        assert isinstance(pool, Pool)
        return pool

    with compiled_once(10, 40), undisturbed_run() as undisturbed, connected(ray_cluster.config()) as ray:
        node = ray_cluster.add_node(cpus=2)
        raylet = node.all_processes["raylet"][0].process.pid
        with running(config(backend="ray", workers=3, deadline=4.0)) as found:
            found.train()
            assert len(workers(found).pids) == 3
            there = [pid for pid, parent in living(*workers(found).pids).items() if parent == raylet]
            assert there  # spread over three nodes
            ray_cluster.remove_node(node)
            found.train()
            pids = [*living(*workers(found).pids)]
            os.kill(pids[0], signal.SIGKILL)
            found.train()
            os.kill(workers(found).pids[-1], signal.SIGSTOP)
            for _ in range(2):
                found.train()
            counters = found.pipeline.counters()
            assert counters["retries"] + counters["late"] >= 2
        check(found, undisturbed)
        until(lambda: not living(*pids, *there) and sum(one["Alive"] for one in ray.nodes()) == 3)
