"""Code that runs in the processes of hosts before they do anything: what monkeypatches are in one process."""

from __future__ import annotations

import contextlib
import os
import signal
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


class _First:
    """A host's spec that calls something where it is unpickled."""

    def __init__(self, spec: HostSpec, call: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self._inner = cloudpickle.dumps(spec), call, arguments

    def __reduce__(self) -> Any:
        return _called, self._inner


def _called(spec: bytes, call: Callable[..., None], arguments: tuple[Any, ...]) -> Any:
    call(*arguments)
    return cloudpickle.loads(spec)


@contextlib.contextmanager
def first_in_hosts(call: Callable[..., None], *arguments: Any) -> Iterator[None]:
    """All hosts that are started in it first call something, a function of a module that they find."""

    def to_bytes(spec: HostSpec) -> bytes:
        return bytes(cloudpickle.dumps((sys.path, spec.run.jax, cloudpickle.dumps(_First(spec, call, arguments)))))

    before = HostSpec.to_bytes
    HostSpec.to_bytes = to_bytes  # type: ignore[method-assign]
    try:
        yield
    finally:
        HostSpec.to_bytes = before  # type: ignore[method-assign]


@contextlib.contextmanager
def at_phase(phase: str, epoch: int, folder: Path, act: Callable[[], None]) -> Iterator[None]:
    """Hosts that are started in it come to a phase of an epoch, once, and stand there until `act` has returned.

    Args:
        phase: one of `PHASES`; of parameter servers where it is "update", else of graph server 0.
        epoch: in which; of checkpoints any.
        folder: an empty one, for signs between processes.
        act: called in a thread of this process.
    """
    over = threading.Event()

    def wait() -> None:
        while not (folder / _REACHED).exists():
            if over.wait(0.002):
                return
        try:
            act()
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


def pause_at(phase: str, epoch: int, folder: str) -> None:
    """Has this process pause at a phase."""
    from dorylax.pipeline.graph_server import GraphServer
    from dorylax.pipeline.hosts.members import GraphMember
    from dorylax.pipeline.parameters.endpoint import ParameterEndpoint
    from dorylax.pipeline.steps import RUN

    def pause() -> None:
        with contextlib.suppress(FileExistsError):
            os.close(os.open(f"{folder}/{_REACHED}", os.O_CREAT | os.O_EXCL))
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


def stop_for(pid: int, seconds: float) -> None:
    """Has a process stand still, and go on."""
    os.kill(pid, signal.SIGSTOP)

    def go_on() -> None:
        time.sleep(seconds)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    threading.Thread(target=go_on, name="goes on", daemon=True).start()
