"""Runs a click command: what every error looks like, and the exit code.

Exit codes: 0 done; 1 the run or the machine failed; 2 the user asked for something that does not exist or cannot be;
130 Ctrl-C; 143 SIGTERM or SIGHUP. What a user can cause is one line on standard error, what the user's own code raises is
its line and a sentence; a traceback is a bug of ours, or was asked for.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import click

from dorylax.hang_up import terminates
from dorylax.terminal.failures import INTERRUPTED, CommandError, explain
from dorylax.terminal.output import print_error

_AGAIN_SECONDS = 0.01

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
    try:
        with terminates(), _ctrl_c_is_not_lost(), warnings.catch_warnings():
            warnings.showwarning = _show_warning
            code = command.main(arguments, prog_name=program, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except CommandError as failure:
        print_error(str(failure))
        return failure.code
    except (click.Abort, KeyboardInterrupt):
        print_error("interrupted")
        return INTERRUPTED
    except Exception as error:
        explained = explain(error)
        if explained is None:
            raise
        if frames:
            print_error("".join(traceback.format_exception(error)))
        print_error(f"error: {explained.line}")
        return explained.code
    return code if isinstance(code, int) else 0


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
