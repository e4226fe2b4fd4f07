"""Readers in threads and a writer that never blocks: no reader sees a half-written row.

Gathers read a buffer for as long as they compute, on threads of their own and without Python's lock; rows that arrive
meanwhile must wait. A write is made at once where nobody reads; otherwise the last reader makes it on its way out, and
new readers wait until then, so that writes are never starved.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import final


@final
class Guard:
    """Guards one buffer."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._readers = 0
        self._waiting: list[tuple[Callable[[], None], Future[None]]] = []

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """While in it, nothing is written. Not to be entered twice by one thread."""
        with self._changed:
            while self._waiting:
                self._changed.wait()
            self._readers += 1
        try:
            yield
        finally:
            with self._changed:
                self._readers -= 1
                if self._readers == 0:
                    self._write_all()

    def write(self, action: Callable[[], None]) -> Future[None] | None:
        """Runs `action` at once, or when the last reader leaves.

        Returns:
            None where it ran; else a future that is done when it has run, and holds its exception.

        Raises:
            BaseException: of an action that ran at once.
        """
        with self._changed:
            if self._readers == 0:
                action()
                return None
            future: Future[None] = Future()
            future.set_running_or_notify_cancel()  # what was asked for is written, whoever gives up waiting
            self._waiting.append((action, future))
        return future

    def _write_all(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        for action, future in waiting:
            try:
                action()
            except BaseException as error:  # goes to whoever asked for the write
                future.set_exception(error)
            else:
                future.set_result(None)
        self._changed.notify_all()
