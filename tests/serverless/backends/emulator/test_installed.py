"""Errors if the emulator, or what it runs, is missing."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from dorylax.net.keys import RunKeys
from dorylax.serverless.backends.emulator.installed import find_emulator
from dorylax.serverless.backends.emulator.pool import emulated_functions
from dorylax.settings.errors import ConfigError


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Looks like the emulator, on a machine that has AWS's runtime."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    path = tmp_path / "aws-lambda-rie"
    path.write_bytes(b"#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_variable_comes_before_the_path(program: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"")
    other.chmod(0o755)
    assert find_emulator({"PATH": str(tmp_path)}) == program
    assert find_emulator({"PATH": str(tmp_path), "DORYLAX_RIE": str(other)}) == other


def test_without_it_the_error_says_what_to_do(program: Path, tmp_path: Path) -> None:
    program.unlink()
    with pytest.raises(ConfigError, match=r"tensor.backend = emulator needs .* set DORYLAX_RIE to its file, or put"):
        find_emulator({"PATH": str(tmp_path)})


def test_what_cannot_be_executed_is_named(program: Path, tmp_path: Path) -> None:
    program.chmod(0o644)
    for name in ("aws-lambda-rie", "", "missing"):
        with pytest.raises(ConfigError, match=rf"DORYLAX_RIE={tmp_path / name} must be a file that can be executed"):
            find_emulator({"DORYLAX_RIE": str(tmp_path / name)})


def test_aws_s_runtime_is_needed_too(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"needs the package awslambdaric, .*pip install 'dorylax\[aws\]'"):
        find_emulator({"DORYLAX_RIE": str(program)})


def test_pools_say_at_once_what_they_cannot_have(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"timeout must be > 0 seconds, got 0\.0"):
        emulated_functions(RunKeys.make(), workers=1, timeout=0.0)
    monkeypatch.delenv("DORYLAX_RIE", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError, match="set DORYLAX_RIE"):
        emulated_functions(RunKeys.make(), workers=1, timeout=1.0)
