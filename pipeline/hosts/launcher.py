"""The contract of what starts hosts, watches them and ends them; training data are none of its business."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from dorylax.errors import DorylaxError


class HostError(DorylaxError, RuntimeError):
    """A host has ended that should not have.

    Args:
        text: in one line: which host, at what, and why.
        user_error: whether what was asked for cannot be, rather than that something failed.
        frames: the traceback in the host; shown with this error's own where that is shown.
    """

    def __init__(self, text: str, *, user_error: bool = False, frames: str | None = None) -> None:
        super().__init__(text)
        self.user_error = user_error
        if frames is not None:
            self.add_note(f"\nIn the host:\n{frames}")


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
