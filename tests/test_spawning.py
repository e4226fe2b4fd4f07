from __future__ import annotations

import signal

import pytest

from dorylax.spawning import death, spawning


def test_signals_are_put_off_while_a_process_starts() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), spawning():  # noqa: PT012 (what comes after must be reached)
        signal.raise_signal(signal.SIGINT)
        done.append(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))
    assert done == [True]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (-signal.SIGKILL, "was killed by SIGKILL, as the system does where memory is short: try fewer --jobs"),
        (-signal.SIGSEGV, "was killed by SIGSEGV"),
        (1, "ended with exit code 1"),
    ],
)
def test_what_killed_it_is_said(code: int, words: str) -> None:
    assert death(code) == words
