"""Errors of bytes that came from elsewhere."""

from __future__ import annotations

from typing import final

from dorylax.errors import DorylaxError


class WireError(DorylaxError, ValueError):
    """Bytes, or a message to encode, that do not follow the format; the text says what was expected."""


@final
class VersionError(WireError):
    """A message of another version of the format: the peer runs another release."""


@final
class ChecksumError(WireError):
    """Bytes that changed on their way; sending them again helps."""
