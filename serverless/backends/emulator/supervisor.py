"""Supervisor that runs a command and kills all its descendants: `python supervisor.py COMMAND…`. Standard library only.

The supervisor stops when its standard input closes, the command ends, or SIGTERM arrives. It then kills all descendants,
writes the tail of their output to its standard output, and exits with the command's status.

A process group is not enough: the emulator starts its runtime in a separate group, and an orphaned runtime keeps computing.
The supervisor is a subreaper (PR_SET_CHILD_SUBREAPER), so it adopts orphans instead of init and finds all of them.
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
"""Size of the retained tail of the output in bytes. It fits into a pipe without a reader."""

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # <linux/prctl.h>


class Running(NamedTuple):
    """Process on this machine.

    Attributes:
        pid: Process id.
        parent: Process id of the parent.
        session: Session id.
        ended: Whether the process is a zombie.
    """

    pid: int
    parent: int
    session: int
    ended: bool


def running() -> Iterator[Running]:
    """Yield all processes of the machine, including zombies."""
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                # The fields after the name, which may contain spaces and parentheses: state, parent, group, session.
                fields = file.read().rpartition(")")[2].split()
                yield Running(int(name), int(fields[1]), int(fields[3]), fields[0] in "ZX")


def main(command: list[str]) -> int:
    """Run a command and return its exit status."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    prctl(_PR_SET_PDEATHSIG, signal.SIGCONT, 0, 0, 0)  # a stopped supervisor resumes and detects the closed input
    signals, wakes = os.pipe()
    printed, prints = os.pipe()
    for descriptor in (signals, wakes, printed):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(wakes)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: None)  # without a handler, the signal would not wake the loop
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=prints,
            stderr=prints,
            # Kill the command if the supervisor is killed.
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
                if not more:  # at the end of the output, the pipe would stay readable forever
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
