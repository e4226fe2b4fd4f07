from __future__ import annotations

import math

import pytest

from dorylax.net.keys import RunKeys
from dorylax.net.link import Link
from dorylax.serverless.handler.settings import SandboxSettings

KEYS = RunKeys.make()


@pytest.mark.parametrize("link", [None, Link(), Link(0.02, 2.5e7, 0.6)], ids=str)
def test_a_line_holds_all_but_the_servers_secret(link: Link | None) -> None:
    settings = SandboxSettings(KEYS, link, 1.5, {"jax_enable_x64": True, "jax_default_matmul_precision": None})
    line = settings.to_line()
    assert line.count(b"\n") == 1
    found = SandboxSettings.from_line(line)
    assert found.keys == RunKeys.from_json(KEYS.to_json())
    assert (found.link, found.cold_start_seconds, found.jax) == (link, 1.5, settings.jax)
    assert KEYS.server_secret not in line


@pytest.mark.parametrize("seconds", [-1.0, math.inf, math.nan])
def test_refuses_a_cold_start_that_is_no_duration(seconds: float) -> None:
    with pytest.raises(ValueError, match="cold_start_seconds must be finite and ≥ 0"):
        SandboxSettings(KEYS, cold_start_seconds=seconds)
