"""Whatever the supervisor starts ends with it, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from support.processes import LONG, alive, until

from dorylax.serverless.backends.emulator import supervisor
from dorylax.serverless.backends.emulator.supervisor import LAST_BYTES, running

# A process, its child in a group of its own, and that one's child in a session of its own; then it says so.
_TREE = """
import subprocess, sys, time
grandchild = "import time; time.sleep(1000)"
child = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {grandchild!r}], start_new_session=True)"
child += "; print('ready', flush=True); time.sleep(1000)"
subprocess.Popen([sys.executable, "-c", child], process_group=0)
time.sleep(1000)
"""

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    made: list[subprocess.Popen[bytes]] = []

    def start_one(*command: str) -> subprocess.Popen[bytes]:
        made.append(
            subprocess.Popen(
                [sys.executable, "-I", "-S", supervisor.__file__, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
        )
        return made[-1]

    yield start_one
    for one in made:
        one.kill()
        one.wait()
        one.stdin.close()
        one.stdout.close()


def below(pid: int) -> set[int]:
    """Descendants of a process."""
    everything, found = list(running()), {pid}
    while more := {one.pid for one in everything if one.parent in found} - found:
        found |= more
    return found - {pid}


@pytest.mark.parametrize("end", ["input", "signal", "command"])
def test_nothing_below_survives(start: Start, end: str) -> None:
    process = start(sys.executable, "-c", _TREE)
    until(lambda: len(below(process.pid)) == 3)
    pids = below(process.pid)
    if end == "input":
        process.stdin.close()
    elif end == "signal":
        process.terminate()
    else:
        (command,) = (one.pid for one in running() if one.parent == process.pid)
        os.kill(command, signal.SIGKILL)
    assert process.wait(LONG) == (128 + signal.SIGKILL if end == "command" else 0)
    # It has waited for them all.
    assert not {one.pid for one in running()} & pids


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent has died")
def test_one_that_is_stopped_ends_with_its_parent() -> None:
    words = [sys.executable, "-I", "-S", supervisor.__file__, sys.executable, "-c", "import time; time.sleep(1000)"]
    between = f"import subprocess, time; p = subprocess.Popen({words!r}, stdin=subprocess.PIPE, start_new_session=True)"
    parent = subprocess.Popen([sys.executable, "-c", f"{between}; time.sleep(1000)"])
    try:
        until(lambda: len(below(parent.pid)) == 2)
        pids = below(parent.pid)
        (stopped,) = (one.pid for one in running() if one.parent == parent.pid)
        os.kill(stopped, signal.SIGSTOP)
    finally:
        parent.kill()
        parent.wait()
    until(lambda: not {one.pid for one in alive()} & pids)


def test_the_last_that_was_printed_is_passed_on_with_the_exit_status(start: Start) -> None:
    program = "import sys; print('x' * 100_000); sys.stdout.flush(); print('the end', file=sys.stderr); sys.exit(3)"
    process = start(sys.executable, "-c", program)
    assert process.wait(LONG) == 3  # nobody reads meanwhile
    printed = process.stdout.read()
    assert len(printed) == LAST_BYTES
    assert printed.endswith(b"xxx\nthe end\n")


def test_a_command_that_prints_no_more_is_waited_for_in_peace(start: Start) -> None:
    process = start(sys.executable, "-c", "import os, time; os.close(1); os.close(2); time.sleep(2); os._exit(5)")
    before = os.times()
    assert process.wait(LONG) == 5
    after = os.times()
    # Of the supervisor and its child, now that both have ended.
    assert after.children_user + after.children_system - before.children_user - before.children_system < 0.3
