"""Errors of received bytes."""

from __future__ import annotations

from typing import final

from dorylax.errors import DorylaxError


@final
class WireError(DorylaxError, ValueError):
    """Bytes or a message that violate the format. The text gives the expectation.

    Attributes:
        damaged: Whether a checksum shows damage in transit, so that a repeat helps.
    """

    def __init__(self, text: str, *, damaged: bool = False) -> None:
        super().__init__(text)
        self.damaged = damaged
