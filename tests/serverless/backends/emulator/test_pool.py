"""Emulated functions with the real handler in them; what all pools share is tested with local workers."""

from __future__ import annotations

import asyncio
import os
import queue
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from support.backends import need_emulator
from support.handler_events import KEY, exported
from support.processes import members

from dorylax.program.stage_file import StageReference, sha256_of
from dorylax.serverless.backends.base import InvokeError
from dorylax.serverless.backends.emulator.pool import EmulatedFunctions
from dorylax.serverless.backends.emulator.supervisor import running
from dorylax.serverless.config import TensorConfigError
from dorylax.serverless.data.keys import RunKeys
from dorylax.serverless.task import OperandSource, ResultTarget
from dorylax.serverless.wire import names
from dorylax.serverless.wire.event import MAX_EVENT_BYTES, Answer

_ROOT = Path(__file__).parents[4]
LONG = 120.0
"""Seconds that nothing here takes."""

Pools = Callable[..., EmulatedFunctions]


@pytest.fixture
def pools(servers: Any) -> Iterator[Pools]:
    need_emulator()
    made: list[EmulatedFunctions] = []

    def make(workers: int = 1, **options: Any) -> EmulatedFunctions:
        made.append(EmulatedFunctions(servers.keys, workers=workers, timeout=LONG, **options))
        return made[-1]

    yield make
    for pool in made:
        pool.close()


def invoke(pool: EmulatedFunctions, event: bytes, timeout: float = LONG) -> Answer:
    return Answer.decode(asyncio.run(pool.invoke(event, timeout)))


def test_functions_compute_and_deliver(servers: Any, pools: Pools, check_rows: Callable[..., None]) -> None:
    """More events than sandboxes; none gets a second one while it has one, of which it would die."""
    arrived = [servers.offer(interval) for interval in range(1, 8)]
    pool = pools(2)
    assert pool.pids == ()

    async def all_events() -> list[bytes]:
        await pool.warm()
        return await asyncio.gather(*(pool.invoke(servers.event(k), LONG) for k in range(1, 8)))

    answers = [Answer.decode(content) for content in asyncio.run(all_events())]
    assert [(answer.error, answer.key.interval) for answer in answers] == [(None, k) for k in range(1, 8)]
    assert sum(answer.cold for answer in answers) == 2  # both have been started, neither called
    for rows in arrived:
        check_rows(rows.get(timeout=LONG))
    assert len(pool.pids) == 2
    assert len(members(*pool.pids)) == 6  # a supervisor, an emulator and a runtime each


def test_what_has_died_or_taken_too_long_is_replaced(servers: Any, pools: Pools) -> None:
    servers.offer()
    pool = pools()
    assert invoke(pool, servers.event()).error is None
    pids, everything = pool.pids, members(*pool.pids)
    (runtime,) = (one.pid for one in running() if one.session in pids and one.parent not in (*pids, os.getpid()))
    os.kill(runtime, signal.SIGSTOP)
    with pytest.raises(InvokeError, match=r"computing took over 0.2 s") as caught:
        invoke(pool, servers.event(), timeout=0.2)
    assert caught.value.reason == "timeout"
    assert pool.pids == ()
    assert not everything & {one.pid for one in running()}
    assert invoke(pool, servers.event()).cold
    (supervisor,) = pool.pids
    os.kill(supervisor, signal.SIGKILL)
    os.waitid(os.P_PID, supervisor, os.WEXITED | os.WNOWAIT)  # it has died, but nobody has looked
    found = invoke(pool, servers.event())
    assert (found.error, found.cold) == (None, True)


def test_functions_have_the_settings_of_jax_and_the_link_and_start_that_are_asked_for(
    servers: Any, pools: Pools
) -> None:
    """A stage of float64, which needs its setting."""
    with jax.enable_x64(True):
        content = exported(lambda x: x + 1, "float64 rows")
    reference = StageReference(sha256_of(content), (0,), (), False, (0,))
    servers.data.offer(servers.graph, names.artefact(reference.sha256), [np.frombuffer(content, np.uint8)])
    servers.data.offer(servers.graph, names.rows(KEY, 0), [np.arange(5.0)])
    asked = {"reference": reference, "operands": (OperandSource("rows"),), "results": (ResultTarget("rows"),)}
    arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
    servers.data.expect(servers.graph, names.result_rows(KEY), arrived.put)
    found = invoke(pools(settings={"jax_enable_x64": True}, cold_start_seconds=0.1), servers.event(**asked))
    assert found.error is None
    np.testing.assert_array_equal(arrived.get(timeout=LONG)[0], np.arange(1.0, 6.0))


def test_events_that_are_too_large_are_refused_before_anything_is_started(pools: Pools) -> None:
    pool = pools()
    with pytest.raises(InvokeError, match=f"at most {MAX_EVENT_BYTES} bytes, got {MAX_EVENT_BYTES + 1}") as caught:
        asyncio.run(pool.invoke(b"x" * (MAX_EVENT_BYTES + 1), 1.0))
    assert caught.value.reason == "refused"
    assert pool.pids == ()


def test_an_event_as_large_as_any_is_taken_whole(pools: Pools) -> None:
    found = invoke(pools(), b"x" * MAX_EVENT_BYTES)
    assert found.error is not None
    assert "the event is refused" in found.error


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"workers": 0}, "workers must be ≥ 1, got 0"),
        ({"threads": 0}, "threads must be ≥ 1, got 0"),
        ({"timeout": 0.0}, "timeout must be > 0 seconds, got 0.0"),
    ],
)
def test_refuses_numbers_that_cannot_work(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EmulatedFunctions(RunKeys.make(), **{"workers": 1, "timeout": 1.0} | given)


def test_a_missing_emulator_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DORYLAX_RIE", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(TensorConfigError, match="set DORYLAX_RIE"):
        EmulatedFunctions(RunKeys.make(), workers=1, timeout=1.0)


_PARENT = """
import asyncio, os, signal, sys
from dorylax.serverless.backends.emulator.pool import EmulatedFunctions
from dorylax.serverless.backends.emulator.supervisor import running
from dorylax.serverless.data.keys import RunKeys
pool = EmulatedFunctions(RunKeys.make(), workers=1, timeout=60.0)
asyncio.run(pool.warm())
pids = sorted(one.pid for one in running() if one.session in pool.pids)
if sys.argv[1] == "killed":
    for pid in pids:
        if pid not in pool.pids:
            os.kill(pid, signal.SIGSTOP)
print(*pids, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("end", ["returns", "killed"])
def test_functions_end_with_their_parent(end: str) -> None:
    """Even if it is killed, and even those that have stopped."""
    need_emulator()
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
        assert len(pids) == 3
        ends = [os.pidfd_open(pid) for pid in pids]
        if end == "killed":
            parent.kill()
        parent.stdin.close()
        parent.wait(LONG)
    for descriptor in ends:
        # Readable when the process has ended.
        assert select.select([descriptor], [], [], LONG)[0]
        os.close(descriptor)
