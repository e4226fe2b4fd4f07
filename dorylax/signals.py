"""Signals that ask this process to end: SIGHUP as SIGTERM, and SIGTERM as Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import final


@final
class Terminated(KeyboardInterrupt):
    """SIGTERM arrived. Handlers of Ctrl-C handle it, too."""


@contextlib.contextmanager
def terminations() -> Iterator[list[int]]:
    """Raise `Terminated` at SIGTERM in the main thread, and yield the list of those that arrived."""
    came: list[int] = []

    def terminate(number: int, _: object) -> None:
        came.append(number)
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield came
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def hang_up_terminates() -> Iterator[None]:
    """Treat the first SIGHUP, by which a closed terminal reports itself, as SIGTERM, and ignore further ones.

    A terminal that closes sends several, and a second SIGTERM ends a run immediately. An ignored SIGHUP (`nohup`) stays
    ignored, and other handlers stay. Outside the main thread, where Python allows no handlers, the context does nothing.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGHUP) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGHUP, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def _terminate(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.raise_signal(signal.SIGTERM)
