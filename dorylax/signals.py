"""Signals that ask this process to end: SIGHUP as SIGTERM, SIGTERM as Ctrl-C, and both as flags for a training loop."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any, final


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


@final
class StopRequests:
    """Context in which the first SIGTERM and the first Ctrl-C only set a flag; handlers are restored at its end.

    Args:
        terminate: Whether to watch SIGTERM; otherwise its handler stays.

    A second signal acts immediately, even if the epoch waits for hanging workers. Ctrl-C raises KeyboardInterrupt. SIGTERM
    runs its former handler; if that returns, or if the default action would end the process, it raises SystemExit. SIGHUP
    counts as SIGTERM, but never as a second one (`hang_up_terminates`). Outside the main thread, where Python allows no
    handlers, the context does nothing. A SIGINT handler other than Python's default stays.

    Attributes:
        terminate: Whether SIGTERM has arrived.
        interrupt: Whether Ctrl-C has arrived.
    """

    def __init__(self, *, terminate: bool = True) -> None:
        self._watches_terminate = terminate
        self.terminate = False
        self.interrupt = False
        self._previous: dict[signal.Signals, Any] = {}
        self._hang_up = contextlib.ExitStack()

    def __enter__(self) -> StopRequests:
        if threading.current_thread() is threading.main_thread():
            if self._watches_terminate:
                self._install(signal.SIGTERM, self._on_terminate)
                self._hang_up.enter_context(hang_up_terminates())
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                self._install(signal.SIGINT, self._on_interrupt)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hang_up.close()
        while self._previous:
            signal.signal(*self._previous.popitem())

    def pass_on(self, *, stopped: bool, answered: bool = False) -> None:
        """Pass on unhandled signals to the former handlers, after the context.

        Args:
            stopped: Whether SIGTERM stopped the work and so has been handled. A SIGTERM that arrived too late for that is
                passed on.
            answered: Whether the caller handles Ctrl-C; otherwise it is raised.

        Raises:
            KeyboardInterrupt: Ctrl-C has arrived and is not answered.
        """
        if self.interrupt and not answered:
            raise KeyboardInterrupt
        if self.terminate and not stopped:
            signal.raise_signal(signal.SIGTERM)

    @property
    def any(self) -> bool:
        """Whether either signal has arrived."""
        return self.terminate or self.interrupt

    def _install(self, number: signal.Signals, handler: Any) -> None:
        previous = signal.signal(number, handler)
        # None: the handler was not installed from Python, so Python cannot restore it.
        self._previous[number] = signal.SIG_DFL if previous is None else previous

    def _on_terminate(self, number: int, frame: FrameType | None) -> None:
        if self.terminate:
            before = self._previous[signal.SIGTERM]
            if callable(before):
                before(number, frame)
            raise SystemExit(128 + number)  # not the default action, which would leave workers and files behind
        self.terminate = True

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.interrupt = True
        signal.signal(signal.SIGINT, self._previous.pop(signal.SIGINT))
