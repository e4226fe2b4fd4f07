"""What is called in the processes of hosts before they do anything (`first_in_hosts`): monkeypatches of theirs."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from harness.in_hosts import first_in_hosts

__all__ = ["be_elsewhere", "fail_at", "fill_disk", "first_in_hosts", "refuse"]


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
