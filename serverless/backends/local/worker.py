"""Worker process of `pool.local_workers`: a fork, or `python -m dorylax.serverless.backends.local.worker`.

The worker reads its settings and then events from its standard input, one per line, and writes one line per event to its
standard output. It exits when its input closes, even during a computation. On Linux, the death of its parent kills it, even
if it is stopped or hangs. A new Python process imports JAX only after the first line, which contains JAX's settings.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from typing import BinaryIO, NamedTuple

from dorylax.parent_death import call_this_process, end_with_parent
from dorylax.serverless.backends.local.lines import READY, content_of, line_of
from dorylax.serverless.handler.settings import SandboxSettings


class Streams(NamedTuple):
    """Pipes from and to the pool."""

    requests: BinaryIO
    answers: BinaryIO


def private_streams() -> Streams:
    """Reserve standard input and output for the pool.

    Afterwards, prints of Python and libraries go to the standard error, and their reads return end-of-file.
    """
    streams = Streams(os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb"))
    sys.stdout.flush()
    os.dup2(2, 1)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    return streams


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
    # Ignore Ctrl-C, which a terminal sends to all processes: the parent ends the worker.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    call_this_process("dorylax worker")
    streams = private_streams()
    lines = read_lines(streams.requests, _exit)
    settings = SandboxSettings.from_line(lines.get())

    # Import late: these modules take a second, during which the thread must already detect the end of the input.
    from dorylax.serverless.handler.handle import handle
    from dorylax.serverless.handler.open import open_sandbox

    sandbox = open_sandbox(settings)
    try:
        _say(streams.answers, READY)
        while True:
            _say(streams.answers, line_of(handle(content_of(lines.get()), sandbox)))
    except BrokenPipeError:
        _exit()


def _say(answers: BinaryIO, line: bytes) -> None:
    answers.write(line)
    answers.flush()


def _exit() -> None:
    # Exit without joining threads, which may be in the middle of a computation or a transfer.
    os._exit(0)


if __name__ == "__main__":
    main()
