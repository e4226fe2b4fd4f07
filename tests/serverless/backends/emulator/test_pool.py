"""Emulated functions with the real handler in them; what all pools share is tested beside this folder."""

from __future__ import annotations

import pytest

from dorylax.serverless.backends.emulator.pool import emulated_functions
from dorylax.serverless.data.keys import RunKeys
from dorylax.settings.errors import ConfigError


def test_a_time_out_is_a_time() -> None:
    with pytest.raises(ValueError, match=r"timeout must be > 0 seconds, got 0\.0"):
        emulated_functions(RunKeys.make(), workers=1, timeout=0.0)


def test_a_missing_emulator_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DORYLAX_RIE", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError, match="set DORYLAX_RIE"):
        emulated_functions(RunKeys.make(), workers=1, timeout=1.0)
