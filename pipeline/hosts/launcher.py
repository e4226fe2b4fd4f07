"""The contract of what starts hosts, watches them and ends them; training data are none of its business."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from dorylax.errors import DorylaxError


class HostError(DorylaxError, RuntimeError):
    """A host has ended that should not have."""


@runtime_checkable
class Launched(Protocol):
    """Hosts that were started.

    Attributes:
        endpoints: of each, in the order of the specs.
        failed: fails with a `HostError` as soon as one of them has ended, before `close`.
    """

    endpoints: Sequence[str]
    failed: asyncio.Future[None]

    def close(self) -> None:
        """Ends all that have not ended by themselves. A second call does nothing."""
        ...


@runtime_checkable
class Launcher(Protocol):
    """Where hosts live."""

    async def launch(self, names: Sequence[str], specs: Sequence[bytes]) -> Launched:
        """Starts a host for each spec, and waits until all listen.

        Args:
            names: what to call each in messages.
            specs: what each is given (`HostSpec.to_bytes`).

        Raises:
            HostError: one could not be started; none is left.
        """
        ...
