"""Processes of this machine: which live, in which session, below which process."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from dorylax.serverless.backends.emulator.supervisor import Running, running

LONG = 60.0
"""Seconds that nothing takes."""


def alive() -> list[Running]:
    """Processes that have not ended, whether or not somebody has waited for those that have."""
    return [one for one in running() if not one.ended]


def members(*sessions: int) -> set[int]:
    """Processes that live and were started in a session, whoever their parents are now."""
    return {one.pid for one in alive() if one.session in sessions}


def below(pid: int) -> list[int]:
    """The living descendants of a process, in the order of their ids."""
    found = []
    with contextlib.suppress(OSError):  # it has ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *below(child)]
    return sorted(found)


def named(pid: int) -> str:
    """The name of a process in the system's table, empty if it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().rstrip()
    return ""


def workers_of(pid: int) -> list[int]:
    """The local workers below a process."""
    return [one for one in below(pid) if named(one) == "dorylax worker"]


def command(pid: int) -> bytes:
    """The command line of a process, empty if it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def until(condition: Callable[[], bool]) -> None:
    """Waits for what must become true, soon."""
    deadline = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
