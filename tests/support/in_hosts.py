"""Code that runs in the processes of hosts before they do anything: what monkeypatches are in one process."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import pytest

from dorylax.pipeline.hosts.spec import HostSpec


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
    """All hosts that are started in it first call something, a function of a module of `support`."""

    def to_bytes(spec: HostSpec) -> bytes:
        return bytes(cloudpickle.dumps((sys.path, spec.run.jax, cloudpickle.dumps(_First(spec, call, arguments)))))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HostSpec, "to_bytes", to_bytes)
        yield


def fail_at(interval: int, epoch: int) -> None:
    """Gathers of an interval fail in an epoch."""
    from dorylax.pipeline.steps import RUN

    gather = RUN["gather"]

    async def fails(server: Any, step: Any, visit: Any) -> None:
        if (visit.number, visit.epoch) == (interval, epoch):
            raise ArithmeticError("no\nsuch row")
        await gather(server, step, visit)

    RUN["gather"] = fails


def send_one_at_a_time() -> None:
    """Graph servers have one message on its way, however small."""
    from dorylax.pipeline.hosts import members
    from dorylax.pipeline.transport.window import Window

    members.Window = lambda: Window(1)


def refuse() -> None:
    """Graph servers refuse their settings."""
    from dorylax.pipeline.hosts import members
    from dorylax.settings.errors import ConfigError

    def refuses(*_: Any, **__: Any) -> None:
        raise ConfigError.of("tensor.host", "= 192.0.2.1 must be an address of this machine")

    members.make_backend = refuses  # type: ignore[assignment]


def fill_disk() -> None:
    """Graph servers cannot write their files of checkpoints."""
    from dorylax.pipeline.hosts import checkpoint_parts

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    checkpoint_parts.write_part = full  # type: ignore[assignment]


def be_elsewhere(folder: str) -> None:
    """Graph servers are on machines that have another folder of this name."""
    from dorylax.pipeline.hosts import checkpoint_parts

    here = checkpoint_parts.open_storage
    checkpoint_parts.open_storage = lambda place: here(place.replace(folder, f"{folder}-there"))
