"""A second process, for measurements between two; it ends with its context."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from dorylax.errors import RunError
from dorylax.parent_death import end_with_parent


@contextmanager
def other_process(serve: Callable[..., None], *arguments: Any) -> Iterator[Connection]:
    """Start a process, and return this end of a pipe to it.

    Args:
        serve: A function at the top of its module; it runs with its end of the pipe and `arguments` until the pipe closes.
        arguments: Picklable arguments.

    Raises:
        RunError: The process has ended while the pipe was in use.
    """
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_begin, args=(serve, theirs, *arguments), daemon=True)
    process.start()
    theirs.close()
    try:
        with ours:
            yield ours
    except (EOFError, ConnectionError):  # the latter where it has not read all that it was sent
        process.join()
        raise RunError(
            f"a process that this one measures with has ended, with exit code {process.exitcode} (-9: killed, as where "
            "memory is short): measure again"
        ) from None
    finally:
        process.join()


def _begin(serve: Callable[..., None], pipe: Connection, *arguments: Any) -> None:
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all of a terminal's processes, and is the parent's
    serve(pipe, *arguments)
