"""Run a click command: standard streams, error messages, and the exit code.

Exit codes: 0 done; 1 the run or the machine failed; 2 the user's input is wrong; 130 Ctrl-C; 143 SIGTERM or SIGHUP. A user's
mistake is reported in one line on standard error, an error in the user's code by its line and a sentence. Tracebacks appear
only for bugs of this project and with `--traceback`.
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
from typing import TextIO

import click

from dorylax.signals import Terminated, hang_up_terminates
from dorylax.terminal.failures import INTERRUPTED, TERMINATED, explain
from dorylax.terminal.output import print_error

_AGAIN_SECONDS = 0.01
_STANDARD_ERROR = 2

traceback_option = click.option(
    "--traceback",
    is_flag=True,
    expose_value=False,
    help="Show where in the code an error comes from; anywhere on the line.",
)
"""Documents the option in the help of programs; `run` removes it from the command line."""


def run(command: click.Command, program: str, arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        command: Command of click.
        program: Name of the program in its help.
        arguments: Arguments without the program's name; by default those of the process.

    Returns:
        The exit code.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    frames = "--traceback" in words
    arguments = [word for word in words if word != "--traceback"]
    _set_up_streams()
    try:
        with hang_up_terminates(), _ctrl_c_is_not_lost(), warnings.catch_warnings():
            # In one line, without its position in this project's code.
            warnings.showwarning = lambda message, *_, **__: print_error(f"warning: {' '.join(str(message).split())}")
            code = command.main(arguments, prog_name=program, standalone_mode=False)
        _flush()
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except (click.Abort, KeyboardInterrupt) as error:
        print_error("interrupted")
        # click raises Abort from it.
        return TERMINATED if Terminated in (type(error), type(error.__cause__)) else INTERRUPTED
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
    """Open missing standard streams, and let all of them replace characters that their encoding lacks."""
    while (free := os.open(os.devnull, os.O_RDWR)) <= _STANDARD_ERROR:
        pass  # otherwise the next open file would become the standard output of C libraries
    os.close(free)
    for name, errors in (("stdout", "replace"), ("stderr", "backslashreplace")):
        stream = getattr(sys, name)
        if stream is None:  # closed when the process started
            setattr(sys, name, _nowhere())
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)


def _flush() -> None:
    """Write buffered output now, because Python reports errors at exit in its own way.

    Raises:
        OSError: The disk is full, or the reader of the pipe has ended.
    """
    try:
        sys.stdout.flush()
    except OSError:
        sys.stdout = _nowhere()  # Python would flush the old stream again at exit
        raise


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")


@contextlib.contextmanager
def _ctrl_c_is_not_lost() -> Iterator[None]:
    """Repeat Ctrl-C shortly after Python has ignored it.

    Python ignores it in callbacks of the garbage collector, such as JAX's, and in finalizers.
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
