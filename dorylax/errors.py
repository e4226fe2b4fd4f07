"""The base class of the errors of this package, and file names for errors of the operating system."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path


class DorylaxError(Exception):
    """Something that dorylax refuses or cannot do; its text is for the user.

    Each error is also the built-in that it is a case of (ValueError, RuntimeError, …), by which it may be caught as well.
    """


class InputError(DorylaxError, ValueError):
    """A mistake in a setting, a model, a graph, a file or another input; the command line exits with code 2.

    Attributes:
        key: The wrong dotted key of the settings, `pipeline.staleness`; empty if there is none.
        problem: The message without its key and place.
    """

    def __init__(self, message: str = "", key: str = "", problem: str = "") -> None:
        super().__init__(message)
        self.key, self.problem = key, problem or message

    def at(self, place: str) -> InputError:
        """Return a copy of the error that names its place in a file: `run.yaml:3`."""
        return InputError(f"{place}: {self}", self.key, self.problem)

    @classmethod
    def of(cls, key: str, problem: str) -> InputError:
        """Make an error whose message begins with its key: `pipeline.staleness` and `must be ≥ 0, got -1`."""
        return cls(f"{key} {problem}" if key else problem, key, problem)


class RunError(DorylaxError, RuntimeError):
    """A failure of the machine or of another process, or a run that would fail; the command line exits with code 1."""


class RunWarning(UserWarning):
    """A file of a run is damaged or cannot be written, and the run continues without it."""


def one_line(text: object) -> str:
    """Return a text in one line; errors of other libraries may have many."""
    return " ".join(str(text).split())


@contextlib.contextmanager
def named(path: Path, new: Path | None = None) -> Iterator[None]:
    """Make errors name the file that the user knows: its final place in `path` for a file in `new`, else `path`.

    Raises:
        OSError: The body raises it; errors of writing and closing lack a file name.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, DorylaxError):  # these errors name the file
            raise
        if error.errno is None:  # NumPy raises a text without a number: "100 requested and 36 written"
            raise OSError(errno.EIO, str(error), str(path)) from error
        if new is not None and isinstance(error.filename, str):
            if not Path(error.filename).is_relative_to(new):  # an input file
                raise
            path /= Path(error.filename).relative_to(new)
        raise OSError(error.errno, error.strerror, str(path)) from error
