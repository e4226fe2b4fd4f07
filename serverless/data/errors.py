"""How a transfer of tensors fails."""

from __future__ import annotations

from dorylax.errors import DorylaxError


class DataError(DorylaxError):
    """A transfer whose attempts have all failed, or that the server refuses."""


class NotOfferedError(DataError):
    """The server has nothing under that name: the task was answered already, or never asked."""


class LostError(DataError):
    """One attempt of a transfer failed; the client tries again before anybody sees this."""
