"""SIGTERM as Ctrl-C, for commands that show or keep what there is when they are ended."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import final


@final
class Terminated(KeyboardInterrupt):
    """SIGTERM came. Whatever hears Ctrl-C hears it."""


@final
class Terminations:
    """Whether one came.

    Attributes:
        came: so.
    """

    came = False


@contextlib.contextmanager
def terminations() -> Iterator[Terminations]:
    """SIGTERM raises `Terminated` in the main thread; in others it does what it always does."""
    found = Terminations()

    def terminate(*_: object) -> None:
        found.came = True
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield found
        return
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield found
    finally:
        signal.signal(signal.SIGTERM, before)
