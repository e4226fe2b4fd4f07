"""Functions that run in host processes before anything else, as monkeypatches do in one process (`first_in_hosts`)."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle

from dorylax.pipeline.hosts.spec import HostSpec

PHASES = ("gather", "stage", "scatter", "backward", "update", "checkpoint")
_REACHED, _GO = "reached", "go"
_LONGEST_SECONDS = 60.0

_Call = tuple[Callable[..., None], tuple[Any, ...]]
_CALLS: list[_Call] = []


class _First:
    """A host's spec that calls something where it is unpickled."""

    def __init__(self, spec: HostSpec, calls: list[_Call]) -> None:
        self._inner = cloudpickle.dumps(spec), calls

    def __reduce__(self) -> Any:
        return _called, self._inner


def _called(spec: bytes, calls: list[_Call]) -> Any:
    for call, arguments in calls:
        call(*arguments)
    return cloudpickle.loads(spec)


@contextlib.contextmanager
def first_in_hosts(call: Callable[..., None], *arguments: Any) -> Iterator[None]:
    """All hosts that are started in it first call something, a function of a module that they find.

    Within another one of these, hosts make that one's call before this one's.
    """

    def to_bytes(spec: HostSpec) -> bytes:
        return bytes(cloudpickle.dumps((sys.path, spec.run.jax, cloudpickle.dumps(_First(spec, list(_CALLS))))))

    before = HostSpec.to_bytes
    HostSpec.to_bytes = to_bytes  # type: ignore[method-assign]
    _CALLS.append((call, arguments))
    try:
        yield
    finally:
        _CALLS.pop()
        HostSpec.to_bytes = before  # type: ignore[method-assign]


@contextlib.contextmanager
def at_phase(phase: str, epoch: int, folder: Path, act: Callable[[int], None]) -> Iterator[None]:
    """Hosts that are started in it come to a phase of an epoch, once, and stand there until `act` has returned.

    Args:
        phase: one of `PHASES`; of parameter servers where it is "update", else of graph server 0.
        epoch: in which; of checkpoints any.
        folder: an empty one, for signs between processes.
        act: called in a thread of this process, with the id of the process that stands there.
    """
    over = threading.Event()

    def wait() -> None:
        while (pid := reached(folder)) is None:
            if over.wait(0.002):
                return
        try:
            act(pid)
        finally:
            (folder / _GO).touch()

    thread = threading.Thread(target=wait, name="at phase", daemon=True)
    thread.start()
    try:
        with first_in_hosts(pause_at, phase, epoch, str(folder)):
            yield
    finally:
        over.set()
        thread.join()


def reached(folder: Path) -> int | None:
    """The process that has come to the phase; None while none has."""
    return int(found[0].name.rpartition("-")[2]) if (found := list(folder.glob(f"{_REACHED}-*"))) else None


def pause_at(phase: str, epoch: int, folder: str) -> None:
    """Has this process pause at a phase."""
    from dorylax.pipeline.graph_server import GraphServer
    from dorylax.pipeline.hosts.members import GraphMember
    from dorylax.pipeline.parameters.endpoint import ParameterEndpoint
    from dorylax.pipeline.steps import RUN

    def pause() -> None:
        with contextlib.suppress(FileExistsError):
            os.close(os.open(f"{folder}/first", os.O_CREAT | os.O_EXCL))
            Path(f"{folder}/{_REACHED}-{os.getpid()}").touch()
            end = time.monotonic() + _LONGEST_SECONDS
            while not os.path.exists(f"{folder}/{_GO}") and time.monotonic() < end:
                time.sleep(0.002)

    def before(inner: Any, is_it: Callable[..., bool]) -> Any:
        async def paused(*given: Any, **named: Any) -> Any:
            if is_it(*given):
                pause()
            return await inner(*given, **named)

        return paused

    def of_first(server: Any, _: Any, visit: Any) -> bool:
        return bool(server.context.role == "graph" and server.shard.server == 0 and visit.epoch == epoch)

    if phase in ("gather", "stage"):
        RUN[phase] = before(RUN[phase], of_first)
    elif phase == "scatter":
        GraphServer.publish = before(GraphServer.publish, of_first)  # type: ignore[method-assign]
    elif phase == "backward":
        GraphServer.push = before(GraphServer.push, of_first)  # type: ignore[method-assign]
    elif phase == "update":
        update = before(ParameterEndpoint._computed, lambda _, update: bool(update.epoch == epoch))
        ParameterEndpoint._computed = update  # type: ignore[method-assign]
    else:
        saving = before(GraphMember._handle, lambda _, kind, *__: bool(kind == "save"))
        GraphMember._handle = saving  # type: ignore[method-assign]


def fail_at(interval: int, epoch: int) -> None:
    """Gathers of an interval fail in an epoch."""
    from dorylax.pipeline.steps import RUN

    gather = RUN["gather"]

    async def fails(server: Any, step: Any, visit: Any) -> None:
        if (visit.number, visit.epoch) == (interval, epoch):
            raise ArithmeticError("no\nsuch row")
        await gather(server, step, visit)

    RUN["gather"] = fails


def refuse() -> None:
    """Graph servers refuse their settings."""
    from dorylax.pipeline import member
    from dorylax.settings.errors import ConfigError

    def refuses(*_: Any, **__: Any) -> None:
        raise ConfigError.of("tensor.host", "= 192.0.2.1 must be an address of this machine")

    member.make_backend = refuses  # type: ignore[assignment]


def fill_disk() -> None:
    """Graph servers cannot write their files of checkpoints."""
    from dorylax.pipeline import saved

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    saved.write_part = full  # type: ignore[assignment]


def be_elsewhere(folder: str) -> None:
    """Graph servers are on machines that have another folder of this name."""
    from dorylax.pipeline import saved

    here = saved.open_storage
    saved.open_storage = lambda place: here(place.replace(folder, f"{folder}-there"))
