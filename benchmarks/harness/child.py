"""A part of a benchmark in a process of its own, whose memory and compiled functions are then its own."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any


class ChildDiedError(Exception):
    """A process that ended without an answer."""


def in_child(function: Callable[..., Any], *arguments: Any, environment: Mapping[str, str] | None = None) -> Any:
    """What a function of a script gives in a new process; both are pickled.

    Args:
        function: at the top of its module.
        arguments: of the function.
        environment: variables that the process has besides this one's.

    Raises:
        ChildDiedError: it raised something, which it has printed, or was killed.
    """
    context = multiprocessing.get_context("spawn")
    answer, sending = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(sending, function, arguments, dict(environment or {})))
    process.start()
    sending.close()
    try:
        return answer.recv()
    except EOFError:
        process.join()
        code = process.exitcode or 0
        how = f"was killed by signal {-code} (9: out of memory)" if code < 0 else f"ended with status {code}"
        raise ChildDiedError(how) from None
    finally:
        process.join()
        answer.close()


def _answer(
    sending: Connection, function: Callable[..., Any], arguments: tuple[Any, ...], environment: dict[str, str]
) -> None:
    os.environ.update(environment)
    sending.send(function(*arguments))
