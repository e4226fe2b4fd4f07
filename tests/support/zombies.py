"""Hosts that were replaced, and live: nobody may believe what they say."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dorylax.pipeline.hosts.processes import _Process
from support.in_hosts import first_in_hosts

_AGAIN, _REFUSED = "again", "refused"
_LOOK_SECONDS = 0.05


@contextlib.contextmanager
def spared(folder: Path) -> Iterator[list[int]]:
    """Processes that are replaced in it are not ended before its end, and not told either: they cannot be reached.

    Args:
        folder: for signs between processes.

    Yields:
        Ids of those that were replaced.
    """
    pids: list[int] = []
    spared: list[_Process] = []
    kill = _Process.kill

    def spares(process: _Process) -> None:
        process._ended = True
        if not process.endpoint.done():
            process.endpoint.cancel()
        process._loop.remove_reader(process._output.fileno())
        spared.append(process)
        pids.append(process.pid)

    _Process.kill = spares  # type: ignore[method-assign]
    try:
        with first_in_hosts(_remember, str(folder)):
            yield pids
    finally:
        _Process.kill = kill  # type: ignore[method-assign]
        for process in spared:
            process.kill()


def haunt(pid: int, folder: Path) -> None:
    """Has a host go on, if it stands still, and say all again that it has ever asked or told others."""
    (folder / f"{_AGAIN}-{pid}").touch()
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def refused(folder: Path) -> int:
    """How many requests of other generations hosts have refused since one said all again."""
    file = folder / _REFUSED
    return len(file.read_bytes()) if file.exists() else 0


def _remember(folder: str) -> None:
    """Has this process note what it asks, to say it again, and count what it refuses of others that do so."""
    from dorylax.pipeline.transport.delivery import Inbox
    from dorylax.pipeline.transport.zeromq import ZeroMqTransport

    said: list[Any] = []
    ask, make, refuses = ZeroMqTransport._ask, ZeroMqTransport.__init__, Inbox.refuses

    def asks(transport: Any, peer: Any, *request: Any, **how: Any) -> int:
        said.append((peer, request, how | {"answer": lambda *_: None}))
        return ask(transport, peer, *request, **how)

    def makes(transport: Any, *given: Any, **named: Any) -> None:
        make(transport, *given, **named)

        def look() -> None:
            if not os.path.exists(f"{folder}/{_AGAIN}-{os.getpid()}"):
                transport._loop.call_later(_LOOK_SECONDS, look)
                return
            for peer, request, how in list(said):
                if peer.socket is not None and not peer.socket.closed:
                    ask(transport, peer, *request, **how)
                    transport._send_soon(peer)

        look()

    def counts(inbox: Any, generation: int, role: Any) -> bool:
        found = refuses(inbox, generation, role)
        if found and any(name.startswith(_AGAIN) for name in os.listdir(folder)):
            with open(f"{folder}/{_REFUSED}", "ab") as file:
                file.write(b".")
        return found

    ZeroMqTransport._ask, ZeroMqTransport.__init__ = asks, makes  # type: ignore[method-assign]
    Inbox.refuses = counts  # type: ignore[method-assign]
