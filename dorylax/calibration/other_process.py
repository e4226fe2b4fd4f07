"""A second process, for measurements between two; it ends with its context."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from dorylax.errors import RunError
from dorylax.processes import Worker


@contextmanager
def other_process(serve: Callable[..., None], *arguments: Any) -> Iterator[Connection]:
    """Start a process, and return this end of a pipe to it.

    Args:
        serve: A function at the top of its module; it runs with its end of the pipe and `arguments` until the pipe closes.
        arguments: Picklable arguments.

    Raises:
        RunError: The process has ended while the pipe was in use.
    """
    worker = Worker(serve, *arguments)
    try:
        with worker.connection:
            yield worker.connection
    except (EOFError, ConnectionError):  # the latter where it has not read all that it was sent
        raise RunError(
            f"a process that this one measures with has ended, with exit code {worker.process.wait()} (-9: killed, as where "
            "memory is short): measure again"
        ) from None
    finally:
        worker.process.wait()
