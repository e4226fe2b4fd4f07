"""The base of every error of this package, so that `except dorylax.DorylaxError` catches them all."""

from __future__ import annotations


class DorylaxError(Exception):
    """Something that dorylax refuses or cannot do; its text is for the user.

    Each error is also the built-in that it is a case of (ValueError, RuntimeError, …), by which it may be caught as well.
    """


class InputError(DorylaxError, ValueError):
    """A mistake in a setting, a model, a file or another input; the command line exits with code 2."""


class RunError(DorylaxError, RuntimeError):
    """A failure of the machine or of another process, or a run that would fail; the command line exits with code 1."""
