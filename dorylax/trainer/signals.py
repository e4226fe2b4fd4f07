"""Being asked to stop: SIGTERM and Ctrl-C become flags that the training loop reads between epochs."""

from __future__ import annotations

import contextlib
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, final

from dorylax import hang_up


@final
class StopRequests:
    """Context in which the first SIGTERM and the first Ctrl-C only set a flag; handlers are put back at its end.

    Args:
        terminate: whether SIGTERM is watched for; else it does what it always does.

    A second one acts at once, whatever the epoch waits for (workers that hang, say): Ctrl-C raises KeyboardInterrupt;
    SIGTERM does what it did before the context and, where that returns or was to end the process, raises SystemExit.
    SIGHUP is a SIGTERM, but never a second one (`dorylax.hang_up`).
    Outside the main thread, where Python allows no handlers, the context does nothing; a SIGINT handler that is not
    Python's own is left alone.

    Attributes:
        terminate: SIGTERM has come.
        interrupt: Ctrl-C has come.
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
                self._hang_up.enter_context(hang_up.terminates())
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
        """After the context: sends on what is still to be acted on, to the handlers that were there before.

        Args:
            stopped: whether SIGTERM stopped the work and is thereby dealt with. One that came too late for that must
                not be swallowed.
            answered: whether whoever pressed Ctrl-C has an answer; else it is raised.

        Raises:
            KeyboardInterrupt: Ctrl-C has come, and is not answered.
        """
        if self.interrupt and not answered:
            raise KeyboardInterrupt
        if self.terminate and not stopped:
            signal.raise_signal(signal.SIGTERM)

    @property
    def any(self) -> bool:
        """Whether either has come."""
        return self.terminate or self.interrupt

    def _install(self, number: signal.Signals, handler: Any) -> None:
        previous = signal.signal(number, handler)
        # None: a handler that was not installed from Python and cannot be put back.
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
