"""Worker processes: they answer, die, hang, are replaced, and leave nothing behind."""

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
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from support.handler_events import KEY, exported

from dorylax.program.stage_file import StageReference, sha256_of
from dorylax.serverless.backends.base import InvokeError
from dorylax.serverless.backends.local import process
from dorylax.serverless.backends.local.pool import LocalWorkers
from dorylax.serverless.data.keys import RunKeys
from dorylax.serverless.data.link import Link
from dorylax.serverless.task import OperandSource, ResultTarget
from dorylax.serverless.wire import names
from dorylax.serverless.wire.event import MAX_EVENT_BYTES, Answer

_ROOT = Path(__file__).parents[4]
LONG = 120.0
"""Seconds that nothing here takes."""


def invoke(pool: LocalWorkers, event: bytes, timeout: float = LONG) -> Answer:
    return Answer.decode(asyncio.run(pool.invoke(event, timeout)))


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def threads_of(pid: int) -> list[str]:
    return [path.read_text().strip() for path in Path(f"/proc/{pid}/task").glob("*/comm")]


def test_a_worker_computes_and_delivers(servers: Any, pools: Any, check_rows: Callable[..., None]) -> None:
    arrived = servers.offer()
    pool = pools()
    assert pool.pids == ()
    first, second = (invoke(pool, servers.event(attempt=k)) for k in range(2))
    assert (first.error, second.error) == (None, None)
    assert (first.key, first.attempt, second.attempt) == (KEY, 0, 1)
    assert (first.cold, second.cold) == (True, False)
    check_rows(arrived.get(timeout=LONG))
    assert len(pool.pids) == 1


def test_warm_starts_all_and_once(pools: Any) -> None:
    pool = pools(3)
    asyncio.run(pool.warm())
    pids = pool.pids
    assert len(pids) == 3
    asyncio.run(pool.warm())
    assert pool.pids == pids


def test_more_events_than_workers_wait(servers: Any, pools: Any, check_rows: Callable[..., None]) -> None:
    arrived = [servers.offer(interval) for interval in range(1, 8)]
    pool = pools(2)

    async def all_events() -> list[bytes]:
        return await asyncio.gather(*(pool.invoke(servers.event(k), LONG) for k in range(1, 8)))

    answers = [Answer.decode(content) for content in asyncio.run(all_events())]
    assert [answer.key.interval for answer in answers] == list(range(1, 8))
    assert {answer.error for answer in answers} == {None}
    for rows in arrived:
        check_rows(rows.get(timeout=LONG))
    assert len(pool.pids) <= 2


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted in /proc, which Linux has")
def test_xla_has_the_threads_that_it_may(pools: Any) -> None:
    for threads in (1, 3):
        pool = pools(threads=threads)
        asyncio.run(pool.warm())
        (pid,) = pool.pids
        assert threads_of(pid).count("tf_XLAEigen") == threads


def test_a_killed_worker_is_replaced(servers: Any, pools: Any) -> None:
    servers.offer()
    pool = pools()
    invoke(pool, servers.event())
    (pid,) = pool.pids
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # it has died, but nobody has looked
    assert invoke(pool, servers.event()).cold
    (other,) = pool.pids
    assert other != pid
    assert not exists(pid)


def test_a_worker_that_dies_with_an_event_fails_it(servers: Any, pools: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    servers.offer()
    pool = pools()
    ask, asked = process.WorkerProcess.ask, threading.Event()

    def announced(worker: process.WorkerProcess, event: bytes, timeout: float) -> bytes:
        asked.set()
        return ask(worker, event, timeout)

    monkeypatch.setattr(process.WorkerProcess, "ask", announced)

    async def kill_it() -> None:
        await pool.warm()
        (pid,) = pool.pids
        os.kill(pid, signal.SIGSTOP)  # so that it cannot answer before it is killed
        call = asyncio.ensure_future(pool.invoke(servers.event(), LONG))
        # A worker that is dead before would be replaced, and another one would answer.
        assert await asyncio.to_thread(asked.wait, LONG)
        os.kill(pid, signal.SIGKILL)
        await call

    with pytest.raises(InvokeError, match=r"worker process \d+ died of SIGKILL while computing") as caught:
        asyncio.run(kill_it())
    assert caught.value.reason == "died"
    assert pool.pids == ()
    assert invoke(pool, servers.event()).error is None


def test_a_worker_that_takes_too_long_is_killed_and_replaced(servers: Any, pools: Any) -> None:
    servers.offer()
    pool = pools()
    asyncio.run(pool.warm())
    (pid,) = pool.pids
    os.kill(pid, signal.SIGSTOP)
    # An event as large as any: a pipe does not take it whole, and its reader has stopped.
    with pytest.raises(InvokeError, match=r"was ended: computing took over 0.2 s") as caught:
        asyncio.run(pool.invoke(b"x" * MAX_EVENT_BYTES, 0.2))
    assert caught.value.reason == "timeout"
    assert not exists(pid)
    assert invoke(pool, servers.event()).error is None


def test_the_time_in_the_queue_does_not_count(servers: Any, pools: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second event waits for 1000 seconds, of a clock that the test sets, and may take 600."""
    for interval in (1, 2):
        servers.offer(interval)
    pool = pools()
    passed = 0.0
    monkeypatch.setattr(process, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + passed))

    async def both() -> list[bytes]:
        nonlocal passed
        await pool.warm()
        (pid,) = pool.pids
        os.kill(pid, signal.SIGSTOP)
        first = asyncio.ensure_future(pool.invoke(servers.event(1), 1e6))
        second = asyncio.ensure_future(pool.invoke(servers.event(2), 600.0))
        await asyncio.sleep(0)
        passed = 1000.0
        os.kill(pid, signal.SIGCONT)
        return [await first, await second]

    answers = [Answer.decode(content) for content in asyncio.run(both())]
    assert [(answer.error, answer.key.interval) for answer in answers] == [(None, 1), (None, 2)]


def test_a_cancelled_event_leaves_the_queue_and_its_worker_goes_on(servers: Any, pools: Any) -> None:
    first, second, third = (servers.offer(interval) for interval in (1, 2, 3))
    pool = pools()

    async def cancel() -> bytes:
        await pool.warm()
        calls = [asyncio.ensure_future(pool.invoke(servers.event(k), LONG)) for k in (1, 2, 3)]
        while not calls[0].done() and not servers.data.counters.gets:
            await asyncio.sleep(0.001)
        calls[0].cancel()
        calls[1].cancel()
        return await calls[2]

    pids_before = asyncio.run(_warm_pids(pool))
    assert Answer.decode(asyncio.run(cancel())).key.interval == 3
    assert pool.pids == pids_before
    assert first.get(timeout=LONG)  # it had begun
    assert third.get(timeout=LONG)
    assert second.empty()


async def _warm_pids(pool: LocalWorkers) -> tuple[int, ...]:
    await pool.warm()
    return pool.pids


def test_workers_have_the_settings_of_jax_and_the_link_and_start_that_are_asked_for(servers: Any, pools: Any) -> None:
    """A stage of float64 is refused without its setting, and computed with it."""
    with jax.enable_x64(True):
        content = exported(lambda x: x + 1, "float64 rows")
    reference = StageReference(sha256_of(content), (0,), (), False, (0,))
    servers.data.offer(servers.graph, names.artefact(reference.sha256), [np.frombuffer(content, np.uint8)])
    servers.data.offer(servers.graph, names.rows(KEY, 0), [np.arange(5.0)])
    asked = {"reference": reference, "operands": (OperandSource("rows"),), "results": (ResultTarget("rows"),)}
    arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
    servers.data.expect(servers.graph, names.result_rows(KEY), arrived.put)
    found = invoke(pools(settings={}), servers.event(**asked))
    assert found.error is not None
    assert "set JAX_ENABLE_X64=1" in found.error
    slow = pools(settings={"jax_enable_x64": True}, link=Link(latency_seconds=0.05), cold_start_seconds=0.1)
    found = invoke(slow, servers.event(**asked))
    assert found.error is None
    assert found.pull_seconds >= 0.1  # two requests
    np.testing.assert_array_equal(arrived.get(timeout=LONG)[0], np.arange(1.0, 6.0))


def test_events_that_are_too_large_are_refused(pools: Any) -> None:
    pool = pools()
    with pytest.raises(InvokeError, match=f"at most {MAX_EVENT_BYTES} bytes, got {MAX_EVENT_BYTES + 1}") as caught:
        asyncio.run(pool.invoke(b"x" * (MAX_EVENT_BYTES + 1), 1.0))
    assert caught.value.reason == "refused"
    assert pool.pids == ()


def test_what_is_printed_while_a_worker_starts_is_no_answer(
    servers: Any, pools: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('of this site', flush=True)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    servers.offer()
    assert invoke(pools(), servers.event()).error is None


def test_a_worker_that_cannot_be_set_up_is_refused(pools: Any, capfd: pytest.CaptureFixture[str]) -> None:
    pool = pools(settings={"jax_no_such_setting": True})
    with pytest.raises(InvokeError, match=r"could not start \(exit status 1\)") as caught:
        asyncio.run(pool.warm())
    assert caught.value.reason == "refused"
    assert "jax_no_such_setting" in capfd.readouterr().err


def test_a_worker_that_is_not_there_is_refused(pools: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(InvokeError, match=r"a worker process cannot be started: .*'/no/such/python'") as caught:
        asyncio.run(pools().warm())
    assert caught.value.reason == "refused"


@pytest.mark.parametrize("name", ["workers", "threads"])
def test_refuses_numbers_that_cannot_work(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be ≥ 1, got 0"):
        LocalWorkers(RunKeys.make(), **{"workers": 1} | {name: 0})


# The end


def test_close_ends_all_even_what_has_stopped_and_fails_what_runs(servers: Any, pools: Any) -> None:
    before = threading.active_count()
    pool = pools(2)

    async def close_meanwhile() -> list[Any]:
        await pool.warm()
        for pid in pool.pids:
            os.kill(pid, signal.SIGSTOP)
        calls = [asyncio.ensure_future(pool.invoke(servers.event(), LONG)) for _ in range(4)]
        await asyncio.sleep(0)  # until they are in the queue
        while len(pool._crew._requests) > 2:
            await asyncio.sleep(0.001)
        pids.extend(pool.pids)
        pool.close()
        return await asyncio.gather(*calls, return_exceptions=True)

    pids: list[int] = []
    errors = asyncio.run(close_meanwhile())
    assert [error.reason for error in errors] == ["died", "died", "refused", "refused"]
    assert len(pids) == 2
    assert not any(map(exists, pids))
    assert pool.pids == ()
    assert threading.active_count() == before
    pool.close()
    with pytest.raises(InvokeError, match="the workers are closed") as caught:
        asyncio.run(pool.invoke(b"", 1.0))
    assert caught.value.reason == "refused"


def test_a_pool_that_nobody_has_any_more_ends_its_workers() -> None:
    pool = LocalWorkers(RunKeys.make(), workers=1)
    asyncio.run(pool.warm())
    (pid,) = pool.pids
    del pool
    gc.collect()
    assert not exists(pid)


_PARENT = """
import asyncio, os, sys
from dorylax.serverless.backends.local.pool import LocalWorkers
from dorylax.serverless.data.keys import RunKeys
pool = LocalWorkers(RunKeys.make(), workers=2)
asyncio.run(pool.warm())
print(*pool.pids, flush=True)
if sys.argv[1] == "forks":
    child = os.fork()
    if not child:
        sys.exit()
    os.waitpid(child, 0)
    print(*pool.pids, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("end", ["returns", "forks", "killed"])
def test_workers_end_with_their_parent_and_not_with_a_fork_of_it(end: str) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", _PARENT, end],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
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


def test_a_worker_imports_neither_flax_nor_optax_nor_the_user_s_modules(
    servers: Any,
    pools: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    servers.offer()
    # A module in the working directory that would come before Python's own.
    (tmp_path / "json.py").write_text("raise ImportError('a module of the user')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")  # the interpreter tells of every import on the standard error
    pool = pools()
    assert invoke(pool, servers.event()).error is None
    pool.close()
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("import time:")]
    imported = {line.rpartition("|")[2].strip() for line in lines}
    assert {"jax", "zmq", "dorylax.serverless.handler.handle"} <= imported
    tops = {name.partition(".")[0] for name in imported}
    # Not cloudpickle, which JAX imports by itself where it is installed.
    assert not tops & {"flax", "optax", "scipy", "pydantic", "orbax", "pytest", "support", "tests"}
    trains = (
        "dorylax.pipeline",
        "dorylax.layers",
        "dorylax.trainer",
        "dorylax.ops",
        "dorylax.serverless.backends.remote",
    )
    assert not {name for name in imported if name.startswith(trains)}
