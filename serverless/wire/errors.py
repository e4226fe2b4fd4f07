"""Errors of received bytes."""

from __future__ import annotations

from typing import final

from dorylax.errors import DorylaxError


class WireError(DorylaxError, ValueError):
    """Bytes or a message that violate the format. The text gives the expectation."""


@final
class ChecksumError(WireError):
    """Bytes damaged in transit. A repeat helps."""
