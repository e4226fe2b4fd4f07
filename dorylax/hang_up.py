"""SIGHUP, which says that the terminal is gone, as a request to end like SIGTERM."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def terminates() -> Iterator[None]:
    """The first SIGHUP is SIGTERM within it; further ones are ignored.

    A terminal that closes sends several, and a second SIGTERM ends a run at once. Where SIGHUP is ignored (`nohup`) or has a
    handler it stays so, and outside the main thread, where Python allows no handlers, the context does nothing.
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
