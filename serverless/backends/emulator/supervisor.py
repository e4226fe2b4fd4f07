"""Runs a command and lets nothing of it survive: `python supervisor.py COMMAND…`, with the standard library alone.

Its parent holds the other end of its standard input. When that closes, the command ends or SIGTERM comes, it kills every
process below it, writes the last of what they printed to its standard output, and exits as the command did.

Process groups would not do: the emulator gives its runtime one of its own, and a runtime whose emulator has died keeps
computing. Here orphans become children of this process instead of init's (PR_SET_CHILD_SUBREAPER), so it finds them all.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

LAST_BYTES = 8192
"""How much of what is printed is kept; less than a pipe takes while nobody reads."""

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # <linux/prctl.h>


class Running(NamedTuple):
    """A process of this machine: its id, its parent's and its session's, and whether it is a zombie."""

    pid: int
    parent: int
    session: int
    ended: bool


def running() -> Iterator[Running]:
    """All processes, zombies included."""
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                # After the name, which may hold spaces and brackets: state, parent, group, session.
                fields = file.read().rpartition(")")[2].split()
                yield Running(int(name), int(fields[1]), int(fields[3]), fields[0] in "ZX")


def main(command: list[str]) -> int:
    """Runs a command; returns its exit status."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    prctl(_PR_SET_PDEATHSIG, signal.SIGCONT, 0, 0, 0)  # where it is stopped, so that it sees its input end
    signals, wakes = os.pipe()
    printed, prints = os.pipe()
    for descriptor in (signals, wakes, printed):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(wakes)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: None)  # else they would not wake
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=prints,
            stderr=prints,
            # In case this process is killed: nobody below would notice.
            preexec_fn=lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),  # noqa: PLW1509  (there is one thread)
        )
    except OSError as error:
        sys.stdout.write(f"{error}\n")
        return 127
    os.close(prints)
    last = b""
    with selectors.DefaultSelector() as selector:
        for descriptor in (0, signals, printed):
            selector.register(descriptor, selectors.EVENT_READ)
        ending = False
        while not ending:
            ready = {key.fd for key, _ in selector.select()}
            if printed in ready:
                more = _read(printed)
                last = (last + more)[-LAST_BYTES:]
                if not more:  # nobody can print any more, and the pipe would be ready for ever
                    selector.unregister(printed)
            ending = (signals in ready and signal.SIGTERM in _read(signals)) or (0 in ready and not _read(0))
            ending = ending or process.poll() is not None
    status = process.poll()
    _kill_all_below()
    while more := _read(printed):
        last = (last + more)[-LAST_BYTES:]
    with contextlib.suppress(BrokenPipeError):
        os.write(1, last)
    return 0 if status is None else status if status >= 0 else 128 - status


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except BlockingIOError:
        return b""


def _kill_all_below() -> None:
    while True:
        for process in running():
            if process.parent == os.getpid():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
