"""Spawned processes of `multiprocessing` that do not outlive their parent.

Processes are spawned, never forked. Only the parent handles Ctrl-C, SIGTERM and SIGHUP.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import multiprocessing.connection
import multiprocessing.resource_tracker
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, final

from dorylax.errors import RunError
from dorylax.parent_death import end_with_parent

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_OF_TERMINALS = (signal.SIGINT, signal.SIGHUP)
"""Signals that a terminal sends to all its processes."""
_SAFE_PATH = "PYTHONSAFEPATH"


@contextlib.contextmanager
def spawning() -> Iterator[None]:
    """Start and register processes in the body, so that their owner ends all of them.

    Ctrl-C and SIGTERM act at its end. The processes never hear the terminal, do not execute the user's script again, and
    look for no module in the working directory.
    """
    with _safe_path(), _signals_put_off(), _without_script():
        yield


def serve(parent: int) -> None:
    """Leave signals of terminals to the parent, whose id is given, and end with it; a process calls it first."""
    for number in _OF_TERMINALS:
        signal.signal(number, signal.SIG_IGN)
    end_with_parent()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


@final
class Worker:
    """A process at the other end of a pipe. Start it within `spawning`.

    Args:
        serve: Called in the process with its end of the pipe and the arguments; a function at the top of its module, which
            is imported once the process watches its parent.
        arguments: Pickled.

    Attributes:
        connection: This end of the pipe.
        process: The process.
    """

    def __init__(self, serve: Callable[..., None], *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        name = serve.__module__, serve.__name__
        self.process = context.Process(target=_begin, args=(name, os.getpid(), theirs, *arguments), daemon=True)
        self.process.start()
        theirs.close()

    def send(self, message: Any) -> None:
        """Send a message; if the process has just died, `receive` reports it."""
        with contextlib.suppress(OSError):
            self.connection.send(message)

    def receive(self) -> Any:
        """Return the next message.

        Raises:
            RunError: The process has ended; the text says how, as the end of a sentence.
        """
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            self.connection.close()
            raise RunError(death(self.process.exitcode)) from None

    def kill(self) -> None:
        """End the process at once."""
        self.process.kill()
        self.process.join()
        self.connection.close()

    def end(self, seconds: float) -> None:
        """Wait for the process to end, and kill it after some seconds."""
        end = time.monotonic() + seconds
        with contextlib.suppress(EOFError, OSError):  # its messages are read, so that it never waits for a reader
            while self.connection.poll(max(0.0, end - time.monotonic())):
                self.connection.recv()
        self.process.join(max(0.0, end - time.monotonic()))
        self.kill()


def _begin(name: tuple[str, str], parent: int, connection: Any, *arguments: Any) -> None:
    serve(parent)
    getattr(importlib.import_module(name[0]), name[1])(connection, *arguments)


def death(code: int | None) -> str:
    """The unexpected end of a process with an exit code, as the end of a sentence."""
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        hint = ", as the system does where memory is short: try fewer --jobs" if name == "SIGKILL" else ""
        return f"was killed by {name}{hint}"
    return f"ended with exit code {code}"


@contextlib.contextmanager
def _safe_path() -> Iterator[None]:
    """Start processes in the body without the working directory on their path: its modules may be foreign.

    The processes start as `python -c`, which puts the working directory before Python's library. `multiprocessing` then sets
    the path of this process.
    """
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SAFE_PATH]
        else:
            os.environ[_SAFE_PATH] = before


@contextlib.contextmanager
def _signals_put_off() -> Iterator[None]:
    """Postpone Ctrl-C and SIGTERM to the end of the body; processes started in it ignore signals of terminals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    multiprocessing.resource_tracker.ensure_running()  # its start would unblock the signal
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in _SIGNALS}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _OF_TERMINALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
        for first in came[:1]:
            signal.raise_signal(first)


@contextlib.contextmanager
def _without_script() -> Iterator[None]:
    """Start processes in the body without another execution of the user's script, which they do not need."""
    main = sys.modules["__main__"]
    kept = {name: getattr(main, name) for name in ("__spec__", "__file__") if hasattr(main, name)}
    main.__spec__ = None
    main.__file__ = None
    try:
        yield
    finally:
        for name in ("__spec__", "__file__"):
            if name in kept:
                setattr(main, name, kept[name])
            else:
                delattr(main, name)


def _end_with(parent: int) -> None:
    """End this process when its parent has died."""
    sentinel = multiprocessing.parent_process()
    if sentinel is not None and sentinel.pid == parent:
        multiprocessing.connection.wait([sentinel.sentinel])
        os._exit(1)
