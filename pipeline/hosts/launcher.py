"""The contract of launchers, which start, watch and stop hosts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from dorylax.errors import DorylaxError
from dorylax.pipeline.hosts.spec import HostSpec


class HostError(DorylaxError, RuntimeError):
    """Unexpected end of a host.

    Args:
        text: One line with the host, its activity and the reason.
        user_error: Whether the settings are impossible, rather than a failure.
        frames: Traceback in the host, shown with this error's traceback.
        lost: Whether the process is dead or unreachable, so that a replacement can continue; False if its code failed.
    """

    def __init__(self, text: str, *, user_error: bool = False, frames: str | None = None, lost: bool = False) -> None:
        super().__init__(text)
        self.user_error, self.lost = user_error, lost
        if frames is not None:
            self.add_note(f"\nIn the host:\n{frames}")


OnEnd = Callable[[int, HostError], None]
"""Callback on the loop for an unexpected end of a host: its number and the error."""


@runtime_checkable
class Launched(Protocol):
    """Running hosts.

    Attributes:
        endpoints: Endpoint of each host, in the order of the specs.
    """

    endpoints: list[str]

    async def replace(self, numbers: Sequence[int]) -> None:
        """Kill those of these hosts that run, and start each with its spec.

        Raises:
            HostError: A host could not be started.
        """
        ...

    def close(self) -> None:
        """Stop all remaining hosts. A second call does nothing."""
        ...


@runtime_checkable
class Launcher(Protocol):
    """Starts hosts."""

    async def launch(self, specs: Sequence[HostSpec], on_end: OnEnd) -> Launched:
        """Start one host per spec, and wait until all listen.

        Args:
            specs: Specification of each host.
            on_end: Called for the unexpected end of a listening host.

        Raises:
            HostError: A host could not be started. All others are stopped.
        """
        ...
