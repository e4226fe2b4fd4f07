"""The worker's program, in a process that this test starts: its streams, its signals, its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dorylax.net.keys import RunKeys
from dorylax.serverless.backends.environment import worker_environment
from dorylax.serverless.backends.local.lines import READY, content_of, line_of
from dorylax.serverless.backends.local.worker import read_lines
from dorylax.serverless.handler.settings import SandboxSettings
from dorylax.serverless.wire.event import Answer

_ROOT = Path(__file__).parents[4]

_NOISY = """
import os, sys
from dorylax.processes import private_streams
requests, answers = private_streams()
print("printed")
os.write(1, b"written\\n")
os.system("echo by a child")
sys.stdout.flush()
assert sys.stdin.read() == ""
answers.write(requests.readline().upper())
answers.flush()
"""


def test_what_others_print_is_no_answer_and_what_they_read_is_no_event() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _NOISY], cwd=_ROOT, input=b"an event\n", capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == b"AN EVENT\n"
    assert sorted(done.stderr.split(b"\n")) == [b"", b"by a child", b"printed", b"written"]


def test_the_end_of_input_is_seen_while_nobody_takes_lines() -> None:
    reading, writing = os.pipe()
    ended = threading.Event()
    with os.fdopen(reading, "rb") as requests:
        lines = read_lines(requests, ended.set)
        os.write(writing, b"one\ntwo\n")
        os.close(writing)
        assert ended.wait(30)
    assert [lines.get(timeout=30) for _ in range(2)] == [b"one\n", b"two\n"]


@pytest.fixture(scope="module")
def worker_process():
    settings = SandboxSettings(RunKeys.make(), jax={"jax_enable_x64": False})
    process = subprocess.Popen(
        [sys.executable, "-c", "from dorylax.serverless.backends.local.worker import main; main()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=worker_environment(os.environ, 1),
        start_new_session=True,
    )
    try:
        process.stdin.write(settings.to_line())
        process.stdin.flush()
        assert process.stdout.readline() == READY
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def ask(process: subprocess.Popen[bytes], content: bytes) -> Answer:
    process.stdin.write(line_of(content))
    process.stdin.flush()
    return Answer.decode(content_of(process.stdout.readline()))


def test_answers_line_by_line_whatever_signals_and_events_come(worker_process: subprocess.Popen[bytes]) -> None:
    for content in (b"", b"no event\nof two lines", b"\x00" * 1000):
        worker_process.send_signal(signal.SIGINT)
        found = ask(worker_process, content)
        assert "the event is refused" in found.error
