"""Worker processes: how they die, hang and are replaced; what all pools share is tested beside this folder."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.pools import LONG, Pools, exists, invoke

from dorylax.net.errors import TaskFailedError
from dorylax.serverless.backends.local import process
from dorylax.serverless.wire.event import MAX_EVENT_BYTES, Answer


@pytest.fixture
def kind() -> str:
    return "local"


def threads_of(pid: int) -> list[str]:
    return [path.read_text().strip() for path in Path(f"/proc/{pid}/task").glob("*/comm")]


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted in /proc, which Linux has")
def test_xla_has_the_threads_that_it_may(pools: Pools) -> None:
    for threads in (1, 3):
        pool = pools(threads=threads)
        asyncio.run(pool.warm())
        (pid,) = pool.pids
        assert threads_of(pid).count("tf_XLAEigen") == threads


@pytest.mark.core  # a real worker process
def test_a_worker_that_dies_with_an_event_fails_it(servers: Any, pools: Pools, monkeypatch: pytest.MonkeyPatch) -> None:
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

    with pytest.raises(TaskFailedError, match=r"worker process \d+ died of SIGKILL while computing") as caught:
        asyncio.run(kill_it())
    assert caught.value.reason == "died"
    assert pool.pids == ()
    assert invoke(pool, servers.event()).error is None


def test_a_worker_that_takes_too_long_is_killed_and_replaced(servers: Any, pools: Pools) -> None:
    servers.offer()
    pool = pools()
    asyncio.run(pool.warm())
    (pid,) = pool.pids
    os.kill(pid, signal.SIGSTOP)
    # An event as large as any: a pipe does not take it whole, and its reader has stopped.
    with pytest.raises(TaskFailedError, match=r"was ended: computing took over 0.2 s") as caught:
        asyncio.run(pool.invoke(b"x" * MAX_EVENT_BYTES, 0.2))
    assert caught.value.reason == "timeout"
    assert not exists(pid)
    assert invoke(pool, servers.event()).error is None


def test_the_time_in_the_queue_does_not_count(servers: Any, pools: Pools, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_what_is_printed_while_a_worker_starts_is_no_answer(
    servers: Any, pools: Pools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('of this site', flush=True)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    servers.offer()
    assert invoke(pools(), servers.event()).error is None


def test_a_worker_that_cannot_be_set_up_is_refused(pools: Pools, capfd: pytest.CaptureFixture[str]) -> None:
    pool = pools(settings={"jax_no_such_setting": True})
    with pytest.raises(TaskFailedError, match=r"could not start \(exit status 1\)") as caught:
        asyncio.run(pool.warm())
    assert caught.value.reason == "refused"
    assert "jax_no_such_setting" in capfd.readouterr().err


def test_a_worker_that_is_not_there_is_refused(pools: Pools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(TaskFailedError, match=r"a worker process cannot be started: .*'/no/such/python'") as caught:
        asyncio.run(pools().warm())
    assert caught.value.reason == "refused"


def test_a_worker_imports_neither_flax_nor_optax_nor_the_user_s_modules(
    servers: Any, pools: Pools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
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
        *("dorylax.pipeline", "dorylax.layers", "dorylax.trainer"),
        *("dorylax.ops", "dorylax.serverless.backends.remote"),
    )
    assert not {name for name in imported if name.startswith(trains)}
