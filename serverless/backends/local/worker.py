"""Worker process of `pool.local_workers`.

The worker reads its settings and then events from its standard input, one per line, and writes one line per event to its
standard output. It exits when its input closes, even during a computation. On Linux, the death of its parent kills it, even
if it is stopped or hangs. A new Python process imports JAX only after the first line, which contains JAX's settings.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from typing import BinaryIO

from dorylax.processes import begin, private_streams
from dorylax.serverless.backends.local.lines import READY, content_of, line_of
from dorylax.serverless.handler.settings import SandboxSettings


def read_lines(requests: BinaryIO, at_end: Callable[[], None]) -> queue.SimpleQueue[bytes]:
    """Read lines in a thread, which detects the end of the input immediately.

    Args:
        requests: Input stream.
        at_end: Callback in that thread at the end of the input.
    """
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        for line in requests:
            lines.put(line)
        at_end()

    threading.Thread(target=read, name="requests", daemon=True).start()
    return lines


def main() -> None:
    """Serve until the input ends."""
    begin("dorylax worker")
    requests, answers = private_streams()
    lines = read_lines(requests, _exit)
    settings = SandboxSettings.from_line(lines.get())

    # Import late: these modules take a second, during which the thread must already detect the end of the input.
    from dorylax.serverless.handler.handle import handle
    from dorylax.serverless.handler.open import open_sandbox

    sandbox = open_sandbox(settings)
    try:
        _say(answers, READY)
        while True:
            _say(answers, line_of(handle(content_of(lines.get()), sandbox)))
    except BrokenPipeError:
        _exit()


def _say(answers: BinaryIO, line: bytes) -> None:
    answers.write(line)
    answers.flush()


def _exit() -> None:
    # Exit without joining threads, which may be in the middle of a computation or a transfer.
    os._exit(0)
