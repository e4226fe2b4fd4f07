"""Keeps every text that a test expects of an error, a warning or a failed command: `DORYLAX_ERROR_TEXTS=FILE pytest`.

Each process of the session writes `FILE.NAME`, one JSON string a line; `sort -u FILE.*` is what two commits are compared by.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click.testing
import pytest
from _pytest.raises import AbstractRaises, RaisesExc
from _pytest.recwarn import WarningsChecker
from hypothesis import currently_in_test_context

_CHANGING = (  # what is not the same in two runs of one test
    (re.compile(r"(?:/[\w.+-]+)*/pytest-of-[\w.-]+/pytest-\d+(?:/popen-gw\d+)?/"), "<tmp>/"),
    (re.compile(r"/tmp/[\w.+-]+"), "<tmp>"),
    (re.compile(r"0x[0-9a-f]{6,}"), "<address>"),
    (re.compile(r"\b127\.0\.0\.1:\d+"), "127.0.0.1:<port>"),
    (re.compile(r"\bpid \d+"), "pid <pid>"),
    (re.compile(re.escape(str(Path(__file__).parents[2])) + r"/"), "<checkout>/"),
    (re.compile(r"\.py(?:\"|'|), line \d+"), ".py, line <line>"),
)


class Recorder:
    """Texts of one process, written when its tests are over."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._texts: set[str] = set()

    def start(self) -> None:
        """Listens wherever tests look at errors."""
        _after(RaisesExc, "__exit__", self._raised)
        _after(WarningsChecker, "__exit__", self._warned)
        _after(click.testing.CliRunner, "invoke", self._commanded)
        _after(subprocess, "run", self._ran)

    def pytest_sessionfinish(self) -> None:
        """Writes what was heard, while pytest-xdist still waits for this process."""
        lines = sorted(json.dumps(text) for text in self._texts)
        self._path.write_text("".join(f"{line}\n" for line in lines))

    def _add(self, text: Any) -> None:
        if currently_in_test_context() or not isinstance(text, str):
            return  # of examples that are drawn
        for pattern, name in _CHANGING:
            text = pattern.sub(name, text)
        self._texts.add(text)

    def _raised(self, context: AbstractRaises[Any], _result: Any) -> None:
        info = getattr(context, "excinfo", None)
        if info is not None and info._excinfo is not None:
            self._add(str(info.value))

    def _warned(self, context: WarningsChecker, _result: Any) -> None:
        for one in context:
            self._add(str(one.message))

    def _commanded(self, _runner: Any, result: click.testing.Result) -> None:
        if result.exit_code != 0:
            self._add(result.output)

    def _ran(self, _command: Any, result: subprocess.CompletedProcess[Any]) -> None:
        if result.returncode != 0:
            self._add(result.stderr)


def _after(owner: Any, name: str, heard: Callable[[Any, Any], None]) -> None:
    """Calls `heard(first argument, result)` after each call of a function."""
    function = getattr(owner, name)

    @functools.wraps(function)
    def wrapped(*args: Any, **options: Any) -> Any:
        result = function(*args, **options)
        heard(args[0] if args else None, result)
        return result

    setattr(owner, name, wrapped)


def configure(config: pytest.Config) -> None:
    """Begins to record where DORYLAX_ERROR_TEXTS says so."""
    path = os.environ.get("DORYLAX_ERROR_TEXTS")
    if path is None:
        return
    recorder = Recorder(Path(f"{path}.{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"))
    recorder.start()
    config.pluginmanager.register(recorder)
