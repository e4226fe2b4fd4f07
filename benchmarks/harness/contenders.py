"""Processes that want the same thing at once, begin together, and may be stopped or killed.

They are forked from one that has imported everything, so that they begin within milliseconds of each other.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import multiprocessing.forkserver
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, final

Outcome = Literal["survived", "lost", "crashed"]

SECONDS = 600.0
"""After which a process hangs, also on a busy machine."""

_ROLES = "harness.shared_things"


class Ended(NamedTuple):
    """What has become of a process.

    Attributes:
        status: its exit status; -n if signal n killed it.
        said: what its role returned, or `error: ` and the line in which the command line would tell its error.
        errors: what it has printed to standard error.
    """

    status: int
    said: str
    errors: str


@final
class Contenders:
    """Processes of a role, ready to begin; killed at the end if they are still there.

    Args:
        role: name of a function of `harness.shared_things`.
        arguments: of the function.
        folder: for what they print; made.
        count: how many they are.
        environment: variables that they have besides those of this process.
    """

    def __init__(
        self, role: str, *arguments: object, folder: Path, count: int, environment: Mapping[str, str] | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        context = _context()
        self._errors = [folder / f"{role}-{number}.txt" for number in range(count)]
        self._connections: list[Connection[Any, Any]] = []
        self.all = []
        for path in self._errors:
            ours, theirs = context.Pipe()
            given = (theirs, role, [str(one) for one in arguments], dict(environment or {}), str(path))
            process = context.Process(target=_contend, args=given)
            process.start()
            theirs.close()
            self._connections.append(ours)
            self.all.append(process)

    def __enter__(self) -> Contenders:
        for connection in self._connections:
            connection.recv()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process, connection in zip(self.all, self._connections, strict=True):
            process.kill()
            process.join()
            connection.close()

    def begin(self, *which: int) -> None:
        """Lets some begin, by default all, at once."""
        for number in which or range(len(self.all)):
            self._connections[number].send("go")

    def pid(self, number: int) -> int:
        """Process id of one."""
        found = self.all[number].pid
        assert found is not None
        return found

    def send(self, number: int, what: signal.Signals) -> None:
        """Sends a signal to one."""
        os.kill(self.pid(number), what)

    def kill(self, number: int) -> None:
        """Kills one, and waits until it is gone."""
        self.all[number].kill()
        self.all[number].join()

    def errors(self, number: int) -> str:
        """What one has printed to standard error by now."""
        return self._errors[number].read_text(errors="replace")

    def ended(self, *which: int) -> list[Ended] | None:
        """Waits for some, by default all; None if one does not end."""
        found = []
        for number in which or range(len(self.all)):
            process, connection = self.all[number], self._connections[number]
            if not connection.poll(SECONDS):
                return None
            try:
                said = str(connection.recv())
            except (EOFError, ConnectionResetError):  # killed, maybe before it had begun
                said = ""
            process.join(SECONDS)
            if process.exitcode is None:
                return None
            found.append(Ended(process.exitcode, said, self.errors(number)))
        return found


def _context() -> Any:
    """Of processes that are forked from one which has imported what roles need, from where this one has it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([_ROLES])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    try:
        multiprocessing.forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
    return context


def _contend(
    connection: Connection[Any, Any], role: str, arguments: Sequence[str], environment: Mapping[str, str], errors: str
) -> None:
    """Of a process: waits for a word, and says what came of it."""
    from dorylax.terminal.failures import explain

    os.environ.update(environment)
    with open(errors, "wb") as file:
        os.dup2(file.fileno(), 2)
    function: Callable[..., str] = getattr(importlib.import_module(_ROLES), role)
    connection.send("ready")
    connection.recv()
    try:
        connection.send(function(*arguments))
    except Exception as error:
        explained = explain(error)
        if explained is None:
            raise
        connection.send(f"error: {explained.line}")


def judge(ended: Sequence[Ended] | None, right: set[str], refusal: str | None = None) -> Outcome:
    """Survived, if each says what is right, or is refused in one line that has these words; killed ones say nothing."""
    assert not any(one.startswith("error: ") for one in right), right
    if ended is None or any("Traceback" in one.errors or one.status not in (0, -signal.SIGKILL) for one in ended):
        return "crashed"
    for one in ended:
        refused = refusal is not None and one.said.startswith("error: ") and refusal in one.said
        if one.status == 0 and one.said not in right and not refused:
            return "crashed" if one.said.startswith("error: ") else "lost"
    return "survived"


def outcomes(tries: int, attempt: Callable[[int], Outcome]) -> dict[str, int]:
    """The figures of a line: of attempts that are numbered from 0."""
    found = [attempt(number) for number in range(tries)]
    return {"tried": tries, **{name: found.count(name) for name in ("survived", "lost", "crashed")}}


def until(condition: Callable[[], bool]) -> bool:
    """Waits for something; False if it does not come to be."""
    deadline = time.monotonic() + SECONDS
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(0.005)
    return found


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process does not run in it."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
