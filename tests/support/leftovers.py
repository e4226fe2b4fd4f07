"""Processes, threads, sockets, and files that a run might leave on this machine."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dorylax import processes

_SECONDS = 10.0


def children() -> set[int]:
    """Children of this process and forks of its warm processes, zombies included."""
    found, warm = set(), {one.process.pid for one in processes._WARM}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # After the name, which may hold spaces and brackets: state, parent.
            if int(path.read_text().rpartition(")")[2].split()[1]) in {os.getpid(), *warm}:
                found.add(int(path.parent.name))
    return found - warm


def sockets() -> set[str]:
    """Open sockets of this process besides those to warm processes."""
    found, warm = set(), {str(one.requests.fileno()) for one in processes._WARM}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{name}")
            if target.startswith("socket:") and name not in warm:
                found.add(target)
    return found


def threads() -> set[str]:
    """Threads but ZeroMQ's collector of sent memory, which it keeps as long as the process lives."""
    return {thread.name for thread in threading.enumerate() if "GarbageCollector" not in type(thread).__name__}


@contextlib.contextmanager
def nothing_left(*, sockets_stay: bool = False) -> Iterator[Path]:
    """Checks at its end that no process, thread, socket or temporary file is there that was not there before.

    Sockets may stay where Ray was connected, which lets go of some only later. Gives the folder in which temporary files are
    made meanwhile, by this process and by those that it starts.
    """
    gc.collect()  # what earlier tests have left is not to end within this one
    looks = (children, threads) if sockets_stay else (children, threads, sockets)
    before = [look() for look in looks]
    with pytest.MonkeyPatch.context() as patch:
        folder = Path(tempfile.mkdtemp(prefix="dx-"))  # short: paths of sockets are limited
        patch.setattr(tempfile, "tempdir", str(folder))
        patch.setenv("TMPDIR", str(folder))
        try:
            yield folder
            files = list(folder.iterdir())
        finally:
            shutil.rmtree(folder)
    assert files == []
    # The system may take a moment to show that a thread has gone with its descriptors.
    end = time.monotonic() + _SECONDS
    while not _within([look() for look in looks], before) and time.monotonic() < end:
        time.sleep(0.01)
    left = [look() - then for look, then in zip(looks, before, strict=True)]
    assert not any(left), left


def _within(now: list[set], before: list[set]) -> bool:
    return all(one <= other for one, other in zip(now, before, strict=True))
