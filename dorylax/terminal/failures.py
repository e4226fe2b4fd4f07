"""Exceptions as one line for the user and an exit code."""

from __future__ import annotations

import contextlib
import errno
import sys
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

import click

from dorylax.errors import DorylaxError
from dorylax.near_matches import choose, close
from dorylax.signals import Terminated, terminations
from dorylax.terminal.output import print_error
from dorylax.user_code.lines import in_one_sentence, user_line

FAILED = 1
WRONG = 2
INTERRUPTED = 130  # 128 + SIGINT, as shells count
TERMINATED = 143  # 128 + SIGTERM

_LOWER = "lower model.hidden_features, model.heads or model.num_layers, or take a smaller graph"
_NO_THREADS = (
    "no more threads or processes may be started: raise the limit of this user (ulimit -u) or of the control group "
    "(pids.max), or end other processes"
)
_UNMAPPED = "failed to map segment from shared object"  # the dynamic linker's words


def stop(text: str, code: int) -> NoReturn:
    """End a command with a text for standard error and an exit code."""
    print_error(text)
    raise click.exceptions.Exit(code)


@contextlib.contextmanager
def told_if_interrupted(text: str) -> Iterator[None]:
    """End the command on Ctrl-C and SIGTERM with a text about its files and the way to continue.

    Raises:
        click.exceptions.Exit: A signal arrived.
    """
    try:
        with terminations():
            yield
    except KeyboardInterrupt as error:
        code = TERMINATED if isinstance(error, Terminated) else INTERRUPTED
        stop(f"interrupted: {text}", code)


class Explained(NamedTuple):
    """One line about an error, or place and message for user code, and the exit code."""

    line: str
    code: int


def explain(error: BaseException) -> Explained | None:
    """Explain an exception to the user; None if only a traceback helps.

    Errors in the user's code (a model, an optimizer) are explained by their line and one sentence. The messages of this
    project's own classes are written for users. The attribute `user_error` marks the user's mistakes, as opposed to
    failures of the machine; in classes without it, a ValueError is the user's mistake.
    """
    if isinstance(error, click.ClickException):
        return Explained(_click_line(error), WRONG)
    text = str(error).strip()
    if isinstance(error, DorylaxError):
        wrong = getattr(error, "user_error", isinstance(error, ValueError))
        return Explained(text, WRONG if wrong else FAILED)
    if isinstance(error, OSError) and error.strerror is not None and error.errno != errno.EAGAIN:
        place = "" if error.filename is None else f"{error.filename}: "  # a full disk comes without a name
        return Explained(f"{place}{error.strerror}", FAILED)
    jax = sys.modules.get("jax")
    of_xla = jax is not None and isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in text
    if isinstance(error, MemoryError) or of_xla:
        reason = " ".join(text.removeprefix("RESOURCE_EXHAUSTED:").split("\n")[0].split()).rstrip(".")
        return Explained(f"this does not fit in memory{f' ({reason})' if reason else ''}: {_LOWER}", FAILED)
    if (isinstance(error, OSError) and error.errno == errno.EAGAIN) or "can't start new thread" in text:
        return Explained(_NO_THREADS, FAILED)
    if isinstance(error, ImportError) and _UNMAPPED in text:
        library = text.partition(":")[0]
        line = f"the address space does not suffice to load libraries ({library}): raise the limit (ulimit -v)"
        return Explained(line, FAILED)
    if (written := user_line(error)) is not None:
        return Explained(f"{written}\n{in_one_sentence(error)}", FAILED)
    if isinstance(error, OSError):  # NumPy's, which are a text alone
        return Explained(" ".join(text.split()) or type(error).__name__, FAILED)
    return None


def _click_line(error: click.ClickException) -> str:
    """Return the message of click in one line, with near matches."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if isinstance(error, click.NoSuchOption):
        names = [name for param in context.command.params for name in param.opts] if context else []
        return f"no such option {error.option_name}: {choose(close(error.option_name, names), names)}"
    line = " ".join(error.format_message().split())
    return line[:1].lower() + line[1:].rstrip(".")
