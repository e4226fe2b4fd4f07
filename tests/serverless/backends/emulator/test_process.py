"""One emulated sandbox with a small function in it: how each quirk of the emulator is handled, and that nothing survives."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.backends import need_emulator
from support.leftovers import nothing_left
from support.processes import LONG, members, until

from dorylax.net.errors import TaskFailedError
from dorylax.net.keys import RunKeys
from dorylax.serverless.backends.emulator.environment import function_environment
from dorylax.serverless.backends.emulator.process import EmulatedProcess
from dorylax.serverless.backends.emulator.supervisor import running
from dorylax.serverless.handler.settings import SandboxSettings

KEYS = RunKeys.make()
_FUNCTION = """
import os, sys, time
from dorylax.serverless.function.invocation import Invocation, response

if os.environ.get("BROKEN"):
    raise RuntimeError("this cannot be imported")

def handler(document, context):
    event = Invocation.read(document).event
    if event is None:
        return response(None)
    what, _, argument = event.decode().partition(" ")
    if what == "sleep":
        time.sleep(float(argument))
    if what == "raise":
        raise ValueError(argument)
    if what == "exit":
        os._exit(int(argument))
    if what == "text":
        return argument * 100_000
    if what == "none":
        return response(None)
    return response(str(os.getpid()).encode())
"""

Start = Callable[..., EmulatedProcess]


@pytest.fixture(autouse=True)
def emulator() -> None:
    need_emulator()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a sandbox, in which nothing is left at the end."""
    (tmp_path / "small.py").write_text(_FUNCTION)
    made: list[tuple[int, EmulatedProcess]] = []

    def start_one(*, seconds: float = LONG, emulator: str | Path = "", ready: bool = True, **more: str) -> Any:
        environment = function_environment(os.environ, 1, seconds) | more
        path = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = str(tmp_path) if path is None else f"{tmp_path}{os.pathsep}{path}"
        program = Path(emulator or os.environ["DORYLAX_RIE"])
        runtime = (sys.executable, "-m", "awslambdaric", "small.handler")
        process = EmulatedProcess(program, runtime, SandboxSettings(KEYS), environment)
        made.append((process.pid, process))
        if ready:
            process.wait_ready(LONG)
        return process

    yield start_one
    for pid, process in made:
        process.end()
        process.end()
        until(lambda pids=(pid, process.pid): not members(*pids))  # an orphan's end may be seen late


def emulator_of(process: EmulatedProcess) -> int:
    (found,) = (one.pid for one in running() if one.parent == process.pid)
    return found


def ask(process: EmulatedProcess, event: str, timeout: float = LONG) -> str:
    return process.ask(event.encode(), timeout).decode()


def refused(process: EmulatedProcess, event: str, reason: str, text: str, timeout: float = LONG) -> None:
    with pytest.raises(TaskFailedError, match=text) as caught:
        ask(process, event, timeout)
    assert caught.value.reason == reason
    assert not process.is_alive()


def test_one_runtime_answers_all_over_one_connection(start: Start) -> None:
    with nothing_left():
        process = start()
        first = ask(process, "pid")
        connection = process._connection.sock
        assert [ask(process, "pid") for _ in range(5)] == [first] * 5
        assert process._connection.sock is connection
        assert int(first) in members(process.pid)
        process.end()


def test_a_connection_that_the_emulator_has_closed_is_opened_again(start: Start) -> None:
    process = start()
    process._connection.close()
    assert ask(process, "pid")


def test_the_emulator_s_time_out(start: Start) -> None:
    # A text with the status of a success; it counts the start too, and so gets a few seconds.
    refused(start(seconds=4.0), "sleep 1000", "timeout", "Task timed out after 4.00 seconds")


def test_the_deadline_of_a_call_is_exact(start: Start) -> None:
    process = start()
    begin = time.monotonic()
    refused(process, "sleep 1000", "timeout", "computing took over 0.2 s", timeout=0.2)
    assert 0.2 <= time.monotonic() - begin < LONG / 2


def test_a_stopped_emulator_is_given_up(start: Start) -> None:
    process = start()
    os.kill(emulator_of(process), signal.SIGSTOP)
    refused(process, "pid", "timeout", "computing took over 0.2 s", timeout=0.2)


@pytest.mark.parametrize(
    ("event", "reason", "text"),
    [
        ("raise boom", "refused", r"ValueError: boom"),
        ("exit 3", "died", "Runtime.ExitError: .*exit status 3"),
        ("text " + "x" * 100, "died", "Function.ResponseSizeTooLarge"),
        ("text x", "died", "is not a response"),
        ("none", "died", "took an event for none"),
    ],
    ids=lambda value: value[:8],
)
def test_what_is_no_answer_ends_the_sandbox(start: Start, event: str, reason: str, text: str) -> None:
    refused(start(), event, reason, text)


def test_a_runtime_that_is_killed_between_calls(start: Start) -> None:
    process = start()
    os.kill(int(ask(process, "pid")), signal.SIGKILL)
    assert process.is_alive()  # the emulator tells with the next call
    refused(process, "pid", "died", "signal: killed")


@pytest.mark.parametrize("victim", ["supervisor", "emulator"])
def test_a_runtime_that_is_busy_does_not_survive(start: Start, victim: str) -> None:
    """By itself it would see only after its call that there is no emulator any more."""
    process = start()
    pid = process.pid if victim == "supervisor" else emulator_of(process)
    killer = threading.Timer(0.2, os.kill, (pid, signal.SIGKILL))
    killer.start()
    refused(process, "sleep 1000", "died", r"emulated sandbox \d+ ended with exit status -?\d+ while computing")
    killer.join()
    until(lambda: not members(process.pid))


def test_what_cannot_be_imported_says_why(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(TaskFailedError, match=r"cannot start: .*this cannot be imported.*are in the log$") as caught:
        start(BROKEN="1")
    assert caught.value.reason == "refused"
    assert "in import_module" in caplog.text  # the traceback


def test_a_start_that_takes_too_long(start: Start) -> None:
    process = start(ready=False)
    with pytest.raises(TaskFailedError, match=r"cannot start: .*starting took over 0\.01 s") as caught:
        process.wait_ready(0.01)
    assert caught.value.reason == "timeout"


_PANICS = """#!/bin/sh
echo "panic: listen tcp 127.0.0.1:1: bind: address already in use" >&2
echo "goroutine 1 [running]:" >&2
exit 2
"""


def test_what_an_emulator_says_that_ends_at_once_is_logged(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(
        TaskFailedError, match=r"ended with exit status 2 while starting; its last lines are in"
    ) as caught:
        start(emulator=script(tmp_path, _PANICS))
    assert caught.value.reason == "refused"
    assert "\n" not in str(caught.value)
    assert "address already in use\ngoroutine 1" in caplog.text


def script(folder: Path, text: str) -> Path:
    program = folder / "emulator"
    program.write_text(text)
    program.chmod(0o755)
    return program


def test_while_it_starts_nobody_else_gets_its_port(start: Start, tmp_path: Path) -> None:
    process = start(emulator=script(tmp_path, "#!/bin/sh\nexec sleep 1000\n"), ready=False)
    with socket.socket() as other:
        with pytest.raises(OSError, match="in use"):
            other.bind(process.address)
        process.end()
        other.bind(process.address)


def test_an_emulator_of_another_machine(start: Start, tmp_path: Path) -> None:
    program = tmp_path / "emulator"
    program.write_bytes(b"\x7fELF of something else")
    program.chmod(0o755)
    with pytest.raises(TaskFailedError, match=r"cannot start: .*exit status 127 while starting \(.*Exec format error"):
        start(emulator=program)


def test_what_is_printed_is_kept_and_shows_no_key(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    process = start()
    ask(process, "pid")
    refused(process, "raise boom", "refused", "boom")
    printed = process._printed.decode()
    assert "[ERROR] ValueError: boom" in printed
    assert KEYS.worker_secret.decode() not in printed
    assert capfd.readouterr() == ("", "")
