"""How a transfer of tensors fails."""

from __future__ import annotations

from dorylax.errors import DorylaxError


class DataError(DorylaxError):
    """A transfer that was tried as often as it may be, or that the server refuses."""


class NotOfferedError(DataError):
    """The server has nothing under that name: the task was answered already, or never asked."""


class LostError(DataError):
    """One attempt of a transfer came to nothing; a client tries again before anybody sees this."""
