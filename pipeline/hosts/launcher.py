"""The contract of what starts hosts, watches them and ends them; training data are none of its business."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from dorylax.errors import DorylaxError
from dorylax.pipeline.hosts.spec import HostSpec


class HostError(DorylaxError, RuntimeError):
    """A host has ended that should not have.

    Args:
        text: in one line: which host, at what, and why.
        user_error: whether what was asked for cannot be, rather than that something failed.
        frames: the traceback in the host; shown with this error's own where that is shown.
        lost: whether its process has gone, or cannot be reached, rather than that its code has failed: another one may do
            what it did.
    """

    def __init__(self, text: str, *, user_error: bool = False, frames: str | None = None, lost: bool = False) -> None:
        super().__init__(text)
        self.user_error, self.lost = user_error, lost
        if frames is not None:
            self.add_note(f"\nIn the host:\n{frames}")


OnEnd = Callable[[int, HostError], None]
"""Told, on the loop, that a host has ended before it was told to: its number, and why."""


@runtime_checkable
class Launched(Protocol):
    """Hosts that were started.

    Attributes:
        endpoints: of each, in the order of the specs.
    """

    endpoints: list[str]

    async def replace(self, numbers: Sequence[int]) -> None:
        """Ends what is left of these hosts at once, and starts each anew, with its spec, wherever there is room.

        Raises:
            HostError: one could not be started.
        """
        ...

    def close(self) -> None:
        """Ends all that have not ended by themselves. A second call does nothing."""
        ...


@runtime_checkable
class Launcher(Protocol):
    """Where hosts live."""

    async def launch(self, specs: Sequence[HostSpec], on_end: OnEnd) -> Launched:
        """Starts a host for each spec, and waits until all listen.

        Args:
            specs: what each is given.
            on_end: told of each host that ends, from the moment on at which it listens.

        Raises:
            HostError: one could not be started; none is left.
        """
        ...
