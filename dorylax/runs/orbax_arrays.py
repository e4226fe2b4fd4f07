"""Arrays in a folder, as Orbax writes and reads them. What goes wrong there is told once, by one short error.

Orbax hands arrays to TensorStore, which writes them in threads of its own. Where a disk refuses, that is raised here; but
each thread also logs it with its stack, and those that answer when nobody waits any more print that the event loop is
closed. A full disk is worth one line, not three hundred.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
import orbax.checkpoint as ocp

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_LOGGERS = ("absl", "asyncio")  # Orbax's; and that of futures whose error nobody asked for
_NUMBER = re.compile(r"\[os_error_code='(\d+)'")  # how TensorStore says what the operating system did


def write(folder: Path, arrays: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    """Writes arrays, none of size zero, by group and name.

    Args:
        folder: absolute; must not be there.
        arrays: group → name → array.

    Raises:
        OSError: the file system refuses; it names the folder.
        ValueError, RuntimeError: Orbax refuses for another reason.
    """
    with _told_once(folder), ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        checkpointer.save(folder, args=ocp.args.PyTreeSave(arrays))


def read(folder: Path, names: Mapping[str, Collection[str]]) -> Mapping[str, Mapping[str, Any]]:
    """Reads arrays that `write` wrote.

    Args:
        folder: absolute.
        names: group → names of the arrays in it.

    Returns:
        As `write` was given them.

    Raises:
        OSError: the file system refuses; it names the folder.
        ValueError, KeyError: they are not there, or damaged.
    """
    wanted = {group: {name: ocp.RestoreArgs(restore_type=np.ndarray) for name in of} for group, of in names.items()}
    with _told_once(folder), ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        found: Mapping[str, Mapping[str, Any]] = checkpointer.restore(
            folder, args=ocp.args.PyTreeRestore(restore_args=wanted)
        )
    return found


@contextlib.contextmanager
def _told_once(folder: Path) -> Iterator[None]:
    """Makes one `OSError` of what the operating system said, in whatever it comes, and keeps it from being printed."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_is_news)
    if not isinstance(sys.unraisablehook, _LateAnswers):
        sys.unraisablehook = _LateAnswers()  # for good: they may come long after the error
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:
        found = _NUMBER.search(str(error))
        number = int(found[1]) if found else error.errno if isinstance(error, OSError) else None
        if number is None:
            raise
        raise OSError(number, os.strerror(number), str(folder)) from error


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a message in a log is of something that is not raised as well."""
    if record.levelno < logging.ERROR:
        return True
    error = record.exc_info[1] if record.exc_info else None
    return f"{os.sep}orbax{os.sep}" not in record.pathname and not _NUMBER.search(str(error))


@final
class _LateAnswers:
    """A `sys.unraisablehook`: what nobody waits for any more is not printed, all else as before."""

    def __init__(self) -> None:
        self._others = sys.unraisablehook

    def __call__(self, what: UnraisableHookArgs) -> None:
        if not (isinstance(what.exc_value, RuntimeError) and str(what.exc_value) == "Event loop is closed"):
            self._others(what)
