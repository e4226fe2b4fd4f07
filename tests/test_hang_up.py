"""SIGHUP: SIGTERM, once, where nobody has decided otherwise."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from dorylax.hang_up import terminates


@pytest.fixture
def terminations() -> Iterator[list[int]]:
    """SIGTERM signals that have come."""
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        yield came
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_first_is_a_sigterm_and_the_others_are_nothing(terminations: list[int]) -> None:
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    with terminates():
        for _ in range(3):
            signal.raise_signal(signal.SIGHUP)
    assert terminations == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


@pytest.mark.parametrize("chosen", [signal.SIG_IGN, lambda *_: None])
def test_who_ignores_it_or_has_a_handler_is_left_alone(terminations: list[int], chosen: Any) -> None:
    before = signal.signal(signal.SIGHUP, chosen)
    try:
        with terminates():
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is chosen
    finally:
        signal.signal(signal.SIGHUP, before)
    assert terminations == []


def test_within_one_another_it_is_still_once(terminations: list[int]) -> None:
    with terminates():
        with terminates():
            signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGHUP)
    assert terminations == [signal.SIGTERM]


def test_other_threads_change_nothing() -> None:
    found = []

    def look() -> None:
        with terminates():
            found.append(signal.getsignal(signal.SIGHUP))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [signal.SIG_DFL]
