"""Pools of sandboxes, of each kind: they answer, die, are replaced, and leave nothing behind."""

from __future__ import annotations

import asyncio
import gc
import os
import queue
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from support.handler_events import KEY, exported
from support.pools import LONG, Pools, exists, invoke
from support.processes import members

from dorylax.net.errors import TaskFailedError
from dorylax.net.link import Link
from dorylax.program.artefact.stage_file import StageReference, sha256_of
from dorylax.program.tasks.stage_calls import OperandSource, ResultTarget
from dorylax.serverless.wire import names
from dorylax.serverless.wire.event import MAX_EVENT_BYTES, Answer

_ROOT = Path(__file__).parents[3]


def test_more_events_than_sandboxes_wait(
    servers: Any, pools: Pools, check_rows: Callable[..., None], kind: str
) -> None:
    """No sandbox gets a second event while it has one, of which an emulator would die."""
    arrived = [servers.offer(interval) for interval in range(1, 8)]
    pool = pools(2)

    async def all_events() -> list[bytes]:
        await pool.warm()
        pids.extend(pool.pids)
        return await asyncio.gather(*(pool.invoke(servers.event(k), LONG) for k in range(1, 8)))

    pids: list[int] = []
    answers = [Answer.decode(content) for content in asyncio.run(all_events())]
    assert [(answer.error, answer.key.interval) for answer in answers] == [(None, k) for k in range(1, 8)]
    assert sum(answer.cold for answer in answers) == 2  # warm starts, and calls nothing
    for rows in arrived:
        check_rows(rows.get(timeout=LONG))
    assert len(pids) == 2
    asyncio.run(pool.warm())
    assert pool.pids == tuple(pids)  # all that are needed are there
    # An emulated function is a supervisor, an emulator and a runtime.
    assert len(members(*pids)) == {"local": 2, "emulator": 6}[kind]


def test_one_that_was_killed_is_replaced(servers: Any, pools: Pools) -> None:
    servers.offer()
    pool = pools()
    invoke(pool, servers.event())
    (pid,) = pool.pids
    handle = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    assert select.select([handle], [], [], LONG)[0]  # it has died, but nobody has looked
    os.close(handle)
    found = invoke(pool, servers.event())
    assert (found.error, found.cold) == (None, True)
    (other,) = pool.pids
    assert other != pid
    assert not exists(pid)


def test_they_have_the_settings_of_jax_and_the_link_and_start_that_are_asked_for(servers: Any, pools: Pools) -> None:
    """A stage of float64 is refused without its setting, and computed with it."""
    with jax.enable_x64(True):
        content = exported(lambda x: x + 1, "float64 rows")
    reference = StageReference(sha256_of(content), (0,), (), False, (0,))
    servers.graph.offer(names.artefact(reference.sha256), [np.frombuffer(content, np.uint8)])
    servers.graph.offer(names.rows(KEY, 0), [np.arange(5.0)])
    asked = {"reference": reference, "operands": (OperandSource("rows"),), "results": (ResultTarget("rows"),)}
    arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
    servers.graph.expect(names.result_rows(KEY), arrived.put)
    found = invoke(pools(settings={}), servers.event(**asked))
    assert "set JAX_ENABLE_X64=1" in found.error
    slow = pools(settings={"jax_enable_x64": True}, link=Link(latency_seconds=0.05), cold_start_seconds=0.1)
    found = invoke(slow, servers.event(**asked))
    assert found.error is None
    assert found.pull_seconds >= 0.1  # two requests
    np.testing.assert_array_equal(arrived.get(timeout=LONG)[0], np.arange(1.0, 6.0))


def test_events_that_are_too_large_are_refused_before_anything_is_started(pools: Pools) -> None:
    pool = pools()
    with pytest.raises(TaskFailedError, match=f"at most {MAX_EVENT_BYTES} bytes, got {MAX_EVENT_BYTES + 1}") as caught:
        asyncio.run(pool.invoke(b"x" * (MAX_EVENT_BYTES + 1), 1.0))
    assert caught.value.reason == "refused"
    assert pool.pids == ()


def test_an_event_as_large_as_any_is_taken_whole(pools: Pools) -> None:
    found = invoke(pools(), b"x" * MAX_EVENT_BYTES)
    assert "the event is refused" in found.error


@pytest.mark.parametrize("name", ["workers", "threads"])
def test_refuses_numbers_that_cannot_work(pools: Pools, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be ≥ 1, got 0"):
        pools(**{name: 0})


# The end


def test_close_ends_all_even_what_has_stopped_and_fails_what_runs(servers: Any, pools: Pools) -> None:
    before = threading.active_count()
    pool = pools(2)

    async def close_meanwhile() -> list[Any]:
        await pool.warm()
        for pid in members(*pool.pids):
            os.kill(pid, signal.SIGSTOP)
        calls = [asyncio.ensure_future(pool.invoke(servers.event(), LONG)) for _ in range(4)]
        await asyncio.sleep(0)  # until they are in the queue
        while len(pool._slots._callers._requests) > 2:
            await asyncio.sleep(0.001)
        pids.extend(pool.pids)
        pool.close()
        return await asyncio.gather(*calls, return_exceptions=True)

    pids: list[int] = []
    errors = asyncio.run(close_meanwhile())
    assert [error.reason for error in errors] == ["died", "died", "refused", "refused"]
    assert len(pids) == 2
    assert not any(map(exists, pids))
    assert not members(*pids)
    assert pool.pids == ()
    assert threading.active_count() == before
    pool.close()
    with pytest.raises(TaskFailedError, match="the workers are closed") as caught:
        asyncio.run(pool.invoke(b"", 1.0))
    assert caught.value.reason == "refused"


def test_a_pool_that_nobody_has_any_more_ends_its_sandboxes(make_pool: Pools) -> None:
    pool = make_pool(workers=1)
    asyncio.run(pool.warm())
    (pid,) = pool.pids
    del pool
    gc.collect()
    assert not exists(pid)


_PARENT = """
import asyncio, os, signal, sys
from dorylax.serverless.backends.emulator.pool import emulated_functions
from dorylax.serverless.backends.emulator.supervisor import running
from dorylax.serverless.backends.local.pool import local_workers
from dorylax.net.keys import RunKeys
kind, end = sys.argv[1:]
keys = RunKeys.make()
pool = local_workers(keys, workers=2) if kind == "local" else emulated_functions(keys, workers=1, timeout=60.0)
asyncio.run(pool.warm())
pids = sorted(one.pid for one in running() if one.session in pool.pids)
if end == "killed":
    for pid in pids:
        if pid not in pool.pids:
            os.kill(pid, signal.SIGSTOP)
print(*pids, flush=True)
if end == "forks":
    child = os.fork()
    if not child:
        sys.exit()
    os.waitpid(child, 0)
    print(*sorted(one.pid for one in running() if one.session in pool.pids), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("end", ["returns", "forks", "killed"])
def test_they_end_with_their_parent_and_not_with_a_fork_of_it(kind: str, end: str) -> None:
    """Even if it is killed, and even what has stopped below a supervisor."""
    parent = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", _PARENT, kind, end],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == {"local": 2, "emulator": 3}[kind]
        if end == "forks":
            assert [int(pid) for pid in parent.stdout.readline().split()] == pids
        ends = [os.pidfd_open(pid) for pid in pids]
        if end == "killed":
            parent.kill()
        parent.stdin.close()
        parent.wait(LONG)
    for descriptor in ends:
        # Readable when the process has ended.
        assert select.select([descriptor], [], [], LONG)[0]
        os.close(descriptor)
