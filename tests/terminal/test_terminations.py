from __future__ import annotations

import os
import signal
import threading

import pytest

from dorylax.terminal.terminations import Terminated, terminations


def test_sigterm_is_heard_as_ctrl_c_is() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with terminations() as ended:
        assert not ended.came
        with pytest.raises(KeyboardInterrupt) as caught:
            _end_me()
        assert caught.type is Terminated
        assert ended.came
    assert signal.getsignal(signal.SIGTERM) is before


def _end_me() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(10)


def test_other_threads_change_nothing() -> None:
    before, found = signal.getsignal(signal.SIGTERM), []

    def look() -> None:
        with terminations() as ended:
            found.append((signal.getsignal(signal.SIGTERM), ended.came))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [(before, False)]
