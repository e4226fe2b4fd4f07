"""Actors are closed in bounded time, whatever has become of their cluster."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from dorylax.pipeline.hosts import ray as hosts
from dorylax.pipeline.hosts.ray import Actors


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
        actors = Actors(ray, ["graph server 0"])
        actors._actors, actors._group = ["actor"], "group"
        actors.close()
        actors.close()

    try:
        asyncio.run(asyncio.wait_for(life(), 10))
    finally:
        answered.set()
    assert killed == ["actor"]
