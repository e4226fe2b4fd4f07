"""Bugs that are put in on purpose, to see that simulations find them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dorylax.pipeline.hosts.host import Host
from dorylax.pipeline.hosts.status import _AllowanceSender
from dorylax.pipeline.parameters.group import ParameterServers
from dorylax.pipeline.parameters.records import Pulled
from dorylax.pipeline.parameters.server import ParameterServer
from dorylax.pipeline.transport.delivery import Inbox


@contextlib.contextmanager
def _replaced(kind: type, name: str, around: Callable[..., Any]) -> Iterator[None]:
    inner = getattr(kind, name)
    setattr(kind, name, lambda *given, **named: around(inner, *given, **named))
    try:
        yield
    finally:
        setattr(kind, name, inner)


def _counted_twice() -> contextlib.AbstractContextManager[None]:
    """What comes again because its acknowledgement was lost is a new request."""
    return _replaced(Inbox, "begin", lambda _, *__: True)


def _ghosts_taken() -> contextlib.AbstractContextManager[None]:
    """Requests of other generations are answered."""
    return _replaced(Inbox, "refuses", lambda *_: False)


def _stash_released() -> contextlib.AbstractContextManager[None]:
    """A gradient is finished with the newest weights, not with those that the interval has pulled."""

    def push(inner: Any, server: Any, given: Any) -> Any:
        whole = inner(server, given)
        newest = server.state
        return whole and (Pulled(newest.version, newest.params, newest.state), whole[1])

    return _replaced(ParameterServer, "push", push)


def _goes_on() -> contextlib.AbstractContextManager[None]:
    """After a loss, those go on who compute the epoch that is abandoned."""

    async def leave(_: Any, host: Any) -> None:
        host._members = []

    return _replaced(Host, "_leave", leave)


def _applied_again() -> contextlib.AbstractContextManager[None]:
    """After a loss, gradients that the version has are applied once more."""

    def make(inner: Any, servers: Any, start: Any, *given: Any, **named: Any) -> None:
        inner(servers, start._replace(due=None), *given, **named)

    return _replaced(ParameterServers, "__init__", make)


def _barrier_passed() -> contextlib.AbstractContextManager[None]:
    """A host is told to stop while it is still being told how far it may go: late, it starts what is held by then."""

    async def stop(_: Any, sender: Any) -> None:
        sender._stops += 1
        sender._told = None
        await sender._ask("stop", None)

    return _replaced(_AllowanceSender, "stop", stop)


BUGS: Mapping[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "acknowledgement": _counted_twice,
    "ghost": _ghosts_taken,
    "stash": _stash_released,
    "abandoned": _goes_on,
    "contained": _applied_again,
    "barrier": _barrier_passed,
}
