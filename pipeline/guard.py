"""A readers-writer lock for reading threads and a writer that never blocks. Readers never see a half-written row.

Gathers read a buffer during their whole computation, on separate threads and without the GIL, so rows that arrive meanwhile
must wait. Without readers, a write runs immediately. Otherwise the last reader runs it on exit, and new readers wait for it,
so that writes never starve.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import final


@final
class Guard:
    """Lock of one buffer."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._readers = 0
        self._waiting: list[tuple[Callable[[], None], Future[None]]] = []

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Block writes inside the context. Not reentrant."""
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
        """Run `action` immediately, or when the last reader exits.

        Returns:
            None if the action has run. Otherwise a future that completes after the action and holds its exception.

        Raises:
            BaseException: The action ran immediately and raised this exception.
        """
        with self._changed:
            if self._readers == 0:
                action()
                return None
            future: Future[None] = Future()
            future.set_running_or_notify_cancel()  # the write happens even if its caller stops waiting
            self._waiting.append((action, future))
        return future

    def _write_all(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        for action, future in waiting:
            try:
                action()
            except BaseException as error:  # passed to the caller of `write`
                future.set_exception(error)
            else:
                future.set_result(None)
        self._changed.notify_all()
