"""A process that reads what may be damaged, and what became of it: a value, a refusal, or worse."""

from __future__ import annotations

import multiprocessing
import resource
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, final

_SECONDS = 120.0  # after which a reader hangs


class Outcome(NamedTuple):
    """What came of one reading.

    Attributes:
        kind: "value"; "refused", in one line of an error for users; "crashed", whatever else.
        text: the value's digest, the line, or what happened.
        grown: bytes by which the most that the process ever held has grown.
    """

    kind: str
    text: str
    grown: int = 0


@final
class ReadingProcess:
    """Calls functions in a process of its own, which is started again when it dies. A context manager."""

    def __init__(self) -> None:
        self._process: Any = None
        self._connection: Connection[Any, Any] | None = None

    def __enter__(self) -> ReadingProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def read(self, function: Callable[..., str], *arguments: Any) -> Outcome:
        """What a function at the top of its module gives."""
        if self._connection is None:
            context = multiprocessing.get_context("spawn")
            self._connection, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs,))
            self._process.start()
            theirs.close()
        try:
            self._connection.send((function, arguments))
            if not self._connection.poll(_SECONDS):
                self._end()
                return Outcome("crashed", "hung")
            return Outcome(*self._connection.recv())
        except (EOFError, ConnectionError):
            self._process.join()
            code = self._process.exitcode
            self._end()
            return Outcome("crashed", f"ended with status {code}")

    def _end(self) -> None:
        if self._connection is None:
            return
        self._connection.close()
        self._process.join(1)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process = self._connection = None


def _serve(connection: Connection[Any, Any]) -> None:
    while True:
        try:
            function, arguments = connection.recv()
        except EOFError:
            return
        before = _most_held()
        outcome = _outcome(function, arguments)
        connection.send((*outcome, _most_held() - before))


def _outcome(function: Callable[..., str], arguments: tuple[Any, ...]) -> tuple[str, str]:
    from dorylax.errors import DorylaxError

    try:
        return "value", function(*arguments)
    except (DorylaxError, OSError) as error:
        text = str(error)
        return ("refused" if text.strip() and "\n" not in text else "crashed"), text
    except BaseException:
        return "crashed", traceback.format_exc()


def _most_held() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
