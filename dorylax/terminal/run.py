"""Runs a click command: what every error looks like, and the exit code.

Exit codes: 0 done; 1 the run or the machine failed; 2 the user asked for something that does not exist or cannot be;
130 Ctrl-C; 143 SIGTERM or SIGHUP. What a user can cause is one line on standard error, what the user's own code raises is
its line and a sentence; a traceback is a bug of ours, or was asked for.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

import click

from dorylax.hang_up import terminates
from dorylax.terminal.failures import INTERRUPTED, TERMINATED, CommandError, explain
from dorylax.terminal.output import print_error
from dorylax.terminal.terminations import Terminated

_AGAIN_SECONDS = 0.01
_STANDARD_ERROR = 2

traceback_option = click.option(
    "--traceback",
    is_flag=True,
    expose_value=False,
    help="Show where in the code an error comes from; anywhere on the line.",
)
"""For the help of programs that `run` runs, which takes it out of the command line."""


def run(command: click.Command, program: str, arguments: Sequence[str] | None = None) -> int:
    """Runs a command.

    Args:
        command: of click.
        program: what help calls it.
        arguments: without the program's name; by default those of the process.

    Returns:
        The exit code.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    frames = "--traceback" in words
    arguments = [word for word in words if word != "--traceback"]
    _set_up_streams()
    try:
        with terminates(), _ctrl_c_is_not_lost(), warnings.catch_warnings():
            warnings.showwarning = _show_warning
            code = command.main(arguments, prog_name=program, standalone_mode=False)
        _flush()
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except CommandError as failure:
        print_error(str(failure))
        return failure.code
    except (click.Abort, KeyboardInterrupt) as error:
        print_error("interrupted")
        return TERMINATED if isinstance(error, Terminated) else INTERRUPTED
    except Exception as error:
        explained = explain(error)
        if explained is None:
            raise
        if frames:
            print_error("".join(traceback.format_exception(error)))
        print_error(f"error: {explained.line}")
        return explained.code
    return code if isinstance(code, int) else 0


def _set_up_streams() -> None:
    """Gives the process standard streams that are open, and take characters that their encoding lacks."""
    while (free := os.open(os.devnull, os.O_RDWR)) <= _STANDARD_ERROR:
        pass  # else the next file that is opened would be the standard output of C libraries
    os.close(free)
    for name, errors in (("stdout", "replace"), ("stderr", "backslashreplace")):
        stream = getattr(sys, name)
        if stream is None:  # it was closed when the process began
            setattr(sys, name, _nowhere())
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)


def _flush() -> None:
    """Writes the rest of the output: at the end of the process Python would report an error in its own way.

    Raises:
        OSError: the output takes no more: a full disk, or a pipe whose reader has ended.
    """
    try:
        sys.stdout.flush()
    except OSError:
        sys.stdout = _nowhere()  # what cannot be written is not tried again
        raise


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")


@contextlib.contextmanager
def _ctrl_c_is_not_lost() -> Iterator[None]:
    """Ctrl-C acts again shortly after where Python passes it over.

    It does so in callbacks of the garbage collector, of which JAX has one, and in finalisers.
    """
    before = sys.unraisablehook

    def passed_over(what: sys.UnraisableHookArgs) -> None:
        if what.exc_type is KeyboardInterrupt:
            main = threading.main_thread().ident
            threading.Timer(_AGAIN_SECONDS, signal.pthread_kill, (main, signal.SIGINT)).start()
        else:
            before(what)

    sys.unraisablehook = passed_over
    try:
        yield
    finally:
        sys.unraisablehook = before


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning as one line; where in our code it was raised tells a user nothing."""
    print_error(f"warning: {' '.join(str(message).split())}")
