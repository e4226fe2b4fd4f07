"""SIGHUP: SIGTERM, once, where nobody has decided otherwise. SIGTERM: Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from dorylax.signals import Terminated, hang_up_terminates, terminations


@pytest.fixture
def came() -> Iterator[list[int]]:
    """SIGTERM signals that have come."""
    numbers: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: numbers.append(number))
    try:
        yield numbers
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_first_hang_up_is_a_sigterm_and_the_others_are_nothing(came: list[int]) -> None:
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    with hang_up_terminates():
        for _ in range(3):
            signal.raise_signal(signal.SIGHUP)
    assert came == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


@pytest.mark.parametrize("chosen", [signal.SIG_IGN, lambda *_: None])
def test_who_ignores_hang_ups_or_has_a_handler_is_left_alone(came: list[int], chosen: Any) -> None:
    before = signal.signal(signal.SIGHUP, chosen)
    try:
        with hang_up_terminates():
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is chosen
    finally:
        signal.signal(signal.SIGHUP, before)
    assert came == []


def test_within_one_another_a_hang_up_is_still_once(came: list[int]) -> None:
    with hang_up_terminates():
        with hang_up_terminates():
            signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGHUP)
    assert came == [signal.SIGTERM]


def test_hang_ups_in_other_threads_change_nothing() -> None:
    found = []

    def look() -> None:
        with hang_up_terminates():
            found.append(signal.getsignal(signal.SIGHUP))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [signal.SIG_DFL]


def test_sigterm_is_heard_as_ctrl_c_is() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with terminations() as came:
        assert came == []
        with pytest.raises(KeyboardInterrupt) as caught:
            _end_me()
        assert caught.type is Terminated
        assert came == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is before


def _end_me() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(10)


def test_terminations_in_other_threads_change_nothing() -> None:
    before, found = signal.getsignal(signal.SIGTERM), []

    def look() -> None:
        with terminations() as came:
            found.append((signal.getsignal(signal.SIGTERM), came))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [(before, [])]
