"""Errors of tensor transfers."""

from __future__ import annotations

from dorylax.errors import DorylaxError


class DataError(DorylaxError):
    """All attempts of a transfer failed, or the server refuses it."""


class NotOfferedError(DataError):
    """The server has no offer under the name: the task is finished or unknown."""
