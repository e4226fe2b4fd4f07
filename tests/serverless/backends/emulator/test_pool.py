"""Emulated functions with the real handler in them; what all pools share is tested beside this folder."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from support.pools import Pools, invoke
from support.processes import members

from dorylax.serverless.backends.base import InvokeError
from dorylax.serverless.backends.emulator.pool import emulated_functions
from dorylax.serverless.backends.emulator.supervisor import running
from dorylax.serverless.data.keys import RunKeys
from dorylax.settings.errors import ConfigError


def test_what_has_taken_too_long_is_ended_and_replaced(servers: Any, pools: Pools) -> None:
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
    found = invoke(pool, servers.event())
    assert (found.error, found.cold) == (None, True)


def test_a_time_out_is_a_time() -> None:
    with pytest.raises(ValueError, match=r"timeout must be > 0 seconds, got 0\.0"):
        emulated_functions(RunKeys.make(), workers=1, timeout=0.0)


def test_a_missing_emulator_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DORYLAX_RIE", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError, match="set DORYLAX_RIE"):
        emulated_functions(RunKeys.make(), workers=1, timeout=1.0)
