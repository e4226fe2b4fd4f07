"""Processes of this machine, as tests of what is started in a session of its own look at them."""

from __future__ import annotations

import time
from collections.abc import Callable

from dorylax.serverless.backends.emulator.supervisor import Running, running

LONG = 60.0
"""Seconds that nothing takes."""


def alive() -> list[Running]:
    """Processes that have not ended, whether or not somebody has waited for those that have."""
    return [one for one in running() if not one.ended]


def members(*sessions: int) -> set[int]:
    """Processes that live and were started in a session, whoever their parents are now."""
    return {one.pid for one in alive() if one.session in sessions}


def until(condition: Callable[[], bool]) -> None:
    """Waits for what must become true, soon."""
    deadline = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
