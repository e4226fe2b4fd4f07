"""The function's entry point, called as the runtime calls it: what lasts between invocations, and between runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jax
import pytest
from support.leftovers import nothing_left

from dorylax.net.errors import WireError
from dorylax.net.keys import RunKeys
from dorylax.serverless.function import entry
from dorylax.serverless.function.invocation import Invocation, read_response
from dorylax.serverless.handler.settings import SandboxSettings
from dorylax.serverless.wire.event import Answer


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A function that has just been started."""
    with nothing_left():
        found = entry._NewestSandbox()
        monkeypatch.setattr(entry, "_newest", found)
        yield found
        found._drop()


def invoke(settings: SandboxSettings, event: bytes | None) -> bytes | None:
    answer = entry.handler(json.loads(Invocation(settings, event).encode()), None)
    return read_response(json.dumps(answer).encode())


def test_a_sandbox_is_made_ready_once_and_kept_for_its_run(kept: Any) -> None:
    settings = SandboxSettings(RunKeys.make())
    assert invoke(settings, None) is None
    sandbox = kept._sandbox
    answer = invoke(settings, b"no event")
    assert Answer.decode(answer).refused
    assert kept._sandbox is sandbox


def test_another_run_finds_nothing_of_the_one_before(kept: Any) -> None:
    before = jax.config.jax_enable_x64
    invoke(SandboxSettings(RunKeys.make()), None)
    sandbox, data = kept._sandbox, kept._data
    try:
        invoke(SandboxSettings(RunKeys.make(), jax={"jax_enable_x64": not before}), None)
        assert jax.config.jax_enable_x64 is not before
    finally:
        jax.config.update("jax_enable_x64", before)
    assert kept._sandbox is not sandbox
    with pytest.raises(RuntimeError, match="closed"):
        data.get("tcp://127.0.0.1:1", "rows")


def test_what_is_no_invocation_makes_nothing(kept: Any) -> None:
    with pytest.raises(WireError, match="an invocation must be an object"):
        entry.handler("hello", None)
    assert kept._sandbox is None
