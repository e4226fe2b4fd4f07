"""How the command line says what went wrong: exceptions to one line and an exit code."""

from __future__ import annotations

from typing import NamedTuple, final

import click

from dorylax.config.errors import choose, close

FAILED = 1
WRONG = 2
INTERRUPTED = 130  # 128 + SIGINT, as shells count
TERMINATED = 143  # 128 + SIGTERM


@final
class CommandError(Exception):
    """An end that has been explained already: text for standard error, and the exit code."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


class Explained(NamedTuple):
    """One line about an error, and the exit code."""

    line: str
    code: int


def explain(error: BaseException) -> Explained | None:
    """What to tell the user about an exception; None where only a traceback helps.

    Our own error classes speak to users: wrong input is a ValueError, what a run or the machine did is not. They are
    told by where their class is defined, because importing them here would import JAX.
    """
    if isinstance(error, click.ClickException):
        return Explained(_click_line(error), WRONG)
    text = str(error).strip()
    if type(error).__module__.partition(".")[0] == "dorylax":
        kind = type(error).__name__
        wrong = isinstance(error, ValueError) or kind in ("RunDirectoryError", "CheckpointError")
        return Explained(text, WRONG if wrong else FAILED)
    if isinstance(error, OSError) and error.filename is not None:
        return Explained(f"{error.filename}: {error.strerror}", FAILED)
    if isinstance(error, MemoryError):
        return Explained(f"not enough memory: {text}".rstrip(": "), FAILED)
    return None


def _click_line(error: click.ClickException) -> str:
    """The message of click in one line, with near matches of what exists."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if isinstance(error, click.NoSuchOption):
        names = [name for param in context.command.params for name in param.opts] if context else []
        return f"no such option {error.option_name}: {choose(close(error.option_name, names), names)}"
    line = " ".join(error.format_message().split())
    return line[:1].lower() + line[1:].rstrip(".")
