"""The base of every error of this package, so that `except dorylax.DorylaxError` catches them all."""

from __future__ import annotations


class DorylaxError(Exception):
    """Something that dorylax refuses or cannot do; its text is for the user.

    Each error is also the built-in that it is a case of (ValueError, RuntimeError, …), by which it may be caught as well.
    """
