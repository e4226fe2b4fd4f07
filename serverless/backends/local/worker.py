"""A worker process of `pool.local_workers`: a fork, or `python -m dorylax.serverless.backends.local.worker`.

The worker reads its settings and then events from its standard input, a line each, and answers each event with a line on its
standard output. The end of the input ends the worker, whatever it computes. On Linux the end of its parent kills it too,
even while it is stopped or hangs. A new Python imports the modules that need JAX after the first line, which holds JAX's
settings.
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
    """The pipes to and from the pool."""

    requests: BinaryIO
    answers: BinaryIO


def private_streams() -> Streams:
    """Take standard input and output for the pool alone.

    From now on Python and libraries print to the standard error and read nothing.
    """
    streams = Streams(os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb"))
    sys.stdout.flush()
    os.dup2(2, 1)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    return streams


def read_lines(requests: BinaryIO, at_end: Callable[[], None]) -> queue.SimpleQueue[bytes]:
    """Read lines in a thread, which sees the end of the input at once.

    Args:
        requests: the input.
        at_end: called at the end, in that thread.
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
    # Its parent decides when it ends; Ctrl-C in a terminal goes to all processes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    call_this_process("dorylax worker")
    streams = private_streams()
    lines = read_lines(streams.requests, _exit)
    settings = SandboxSettings.from_line(lines.get())

    # Late: these take a second to import, and the end of the input must be seen meanwhile.
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
    # At once, without waiting for threads: one may be in the middle of a computation or a transfer.
    os._exit(0)


if __name__ == "__main__":
    main()
