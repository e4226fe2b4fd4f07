"""What goes wrong in AWS and stays wrong."""

from __future__ import annotations

from typing import final

from dorylax.errors import DorylaxError


@final
class AwsError(DorylaxError, RuntimeError):
    """A request that no repetition would help; the text is for the user, says what to do, and holds nothing secret."""
