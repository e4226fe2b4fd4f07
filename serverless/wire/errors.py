"""Errors of messages and transfers."""

from __future__ import annotations

from typing import final

from dorylax.errors import DorylaxError


@final
class WireError(DorylaxError, ValueError):
    """Bytes or a message that violate the format. The text gives the expectation."""


@final
class DataError(DorylaxError):
    """All attempts of a transfer failed, the server refuses it, or it has no offer under the name."""
