"""A process that calls functions one after the other, commands among them; it may be killed, and is started again."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, final

from hostile.disk_shim import Shim, Watch

SECONDS = 300.0
"""After which a call hangs, also on a busy machine."""


class DiedError(Exception):
    """The process of a call has ended, or hung and was killed."""


class Ended(NamedTuple):
    """How a command ended.

    Attributes:
        code: Its exit status; None if it hung, or its process died.
        output, errors: The text that it printed.
    """

    code: int | None
    output: str
    errors: str

    @property
    def in_one_line(self) -> bool:
        """Whether it succeeded, or refused or ended with one line, besides warnings."""
        lines = [line for line in self.errors.splitlines() if not line.startswith("warning: ")]
        return self.code == 0 or (self.code in (1, 2) and len(lines) == 1 and lines[0].startswith("error: "))


@final
class Worker:
    """A process for calls; a context manager. All that it has imported and compiled stays.

    Args:
        folder: For texts that commands print; made.
        environment: Variables from its start on.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._environment = folder, dict(environment or {})
        self._process: Any = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """The id of its process."""
        assert self._process is not None
        return int(self._process.pid)

    def kill(self) -> None:
        """Kill the process. The next call starts another one."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._connection.close()
            self._process = None

    def start(self, function: Callable[..., Any], *arguments: Any, **environment: str) -> None:
        """Begins a call of a function at the top of its module, with variables of the environment."""
        if self._process is None:
            context = multiprocessing.get_context("spawn")
            self._connection: Connection[Any, Any]
            self._connection, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs,))
            with _environment(self._environment):
                self._process.start()
            theirs.close()
        self._connection.send((function, arguments, environment))

    def result(self, seconds: float = SECONDS) -> Any:
        """The value of the call.

        Raises:
            DiedError: The worker died before it returned a value.
        """
        try:
            if self._connection.poll(seconds):
                return self._connection.recv()
            why = "it hung"
        except (EOFError, ConnectionError):
            self._process.join()
            why = f"its process ended with status {self._process.exitcode}"
        self.kill()
        raise DiedError(why)

    def call(self, function: Callable[..., Any], *arguments: Any, **environment: str) -> Any:
        """Begins a call, and returns its value."""
        self.start(function, *arguments, **environment)
        return self.result()

    def start_command(
        self, words: Sequence[str | Path], cwd: Path, watch: Watch | None = None, **environment: str
    ) -> None:
        """Begins a command: `MODULE:FUNCTION`, which takes arguments and returns the exit status, and these."""
        self.start(_command, [str(word) for word in words], str(cwd), str(self._folder), watch, **environment)

    def command_result(self, seconds: float = SECONDS) -> Ended:
        """How it ended."""
        code: int | None = None
        with contextlib.suppress(DiedError):
            code = self.result(seconds)
        output, errors = ((self._folder / name).read_text(errors="replace") for name in ("output", "errors"))
        return Ended(code, output, errors)

    def command(self, words: Sequence[str | Path], cwd: Path, watch: Watch | None = None) -> Ended:
        """Both."""
        self.start_command(words, cwd, watch)
        return self.command_result()


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _serve(connection: Connection[Any, Any]) -> None:
    while True:
        try:
            function, arguments, environment = connection.recv()
        except EOFError:
            return
        os.environ.update(environment)
        tempfile.tempdir = None  # which it keeps, whatever TMPDIR is now
        connection.send(function(*arguments))  # an exception ends the process


def _command(words: list[str], cwd: str, folder: str, watch: Watch | None) -> int:
    os.chdir(cwd)
    for stream, name in ((1, "output"), (2, "errors")):
        with open(f"{folder}/{name}", "wb") as file:
            os.dup2(file.fileno(), stream)
    program, *arguments = words
    module, _, name = program.partition(":")
    main = getattr(importlib.import_module(module), name)
    with contextlib.ExitStack() as around:
        shim = None if watch is None else around.enter_context(Shim.watching(watch))
        try:
            code = int(main(arguments))
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
            code = 1
        if shim is not None:
            shim.mark(f"ended {code}")
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def until(condition: Callable[[], bool], seconds: float = SECONDS) -> bool:
    """Waits for a condition; False if it does not come to hold."""
    deadline = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(0.005)
    return found


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process does not run in it."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
