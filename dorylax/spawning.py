"""Processes of `multiprocessing` that begin in peace and do not outlive their parent.

Processes are spawned, never forked. Ctrl-C, SIGTERM and SIGHUP are the parent's to hear.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import multiprocessing.resource_tracker
import os
import signal
import sys
import threading
from collections.abc import Iterator

from dorylax.parent_death import end_with_parent

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_OF_TERMINALS = (signal.SIGINT, signal.SIGHUP)
"""What a terminal sends to all its processes."""
_SAFE_PATH = "PYTHONSAFEPATH"


@contextlib.contextmanager
def spawning() -> Iterator[None]:
    """For starting processes and for writing down that they are there, so that whoever ends them knows of all.

    Ctrl-C and SIGTERM act at its end. What is started never hears the terminal, does not execute the user's script again,
    and looks for no module in the working directory.
    """
    with _safe_path(), _signals_put_off(), _without_script():
        yield


def serve(parent: int) -> None:
    """What a process that was started calls first: it leaves signals of terminals to its parent, and ends with it.

    Args:
        parent: the parent's id.
    """
    for number in _OF_TERMINALS:
        signal.signal(number, signal.SIG_IGN)
    end_with_parent()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def death(code: int | None) -> str:
    """How a process ended that should not have, as the end of a sentence about it.

    Args:
        code: its exit code.
    """
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        hint = ", as the system does where memory is short: try fewer --jobs" if name == "SIGKILL" else ""
        return f"was killed by {name}{hint}"
    return f"ended with exit code {code}"


@contextlib.contextmanager
def _safe_path() -> Iterator[None]:
    """Processes that are started in it look for no module in the working directory, which may be a stranger's.

    They begin with `python -c`, for which it would come before Python's own library. `multiprocessing` then gives them this
    process's path.
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
    """Ctrl-C and SIGTERM act at its end; what is started in it never hears the terminal, not even while it starts."""
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
    """A process that is started in it does not execute the user's script again: nothing of it is needed there."""
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
    """Ends this process when its parent has died, however it did."""
    sentinel = multiprocessing.parent_process()
    if sentinel is not None and sentinel.pid == parent:
        multiprocessing.connection.wait([sentinel.sentinel])
        os._exit(1)
