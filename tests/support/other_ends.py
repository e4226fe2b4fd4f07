"""What processes that a test starts do at their end of a pipe: such a process imports `support`, but no test module."""

from __future__ import annotations

import os
import time
from multiprocessing.connection import Connection


def echo(pipe: Connection, more: int) -> None:
    """Answers each number with this process's and the number plus `more`, until the pipe is closed."""
    try:
        while True:
            pipe.send((os.getpid(), pipe.recv() + more))
    except EOFError:
        return


def end(pipe: Connection, code: int) -> None:
    """Ends with the code when it is first asked something."""
    pipe.poll(None)
    os._exit(code)


def sleep(pipe: Connection) -> None:
    """Says that it sleeps, and reads nothing any more."""
    pipe.send("asleep")
    time.sleep(3600)
