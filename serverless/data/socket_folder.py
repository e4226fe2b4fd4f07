"""The folder for socket files of the data plane: new, for this user only, of a path short enough for a socket."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import zmq

from dorylax.errors import DorylaxError
from dorylax.own_folder import OwnFolder

# Tried after the temporary folder itself, which may be long (those of batch jobs are): $XDG_RUNTIME_DIR is its user's alone.
_SHORT = ("/tmp", "/var/tmp")
_LONGEST = zmq.IPC_PATH_MAX_LEN - len("/3fffff")  # a process id


class SocketFolderError(DorylaxError, OSError):
    """There is no place for socket files."""


def make_socket_folder() -> OwnFolder:
    """A new folder for socket files, for this user only; in another place where the temporary folder's path is too long.

    Nothing but sockets comes into it.

    Raises:
        SocketFolderError: none can be made; says why, and what to do.
    """
    reasons = []
    for place in _places():
        try:
            folder = Path(tempfile.mkdtemp(prefix="dorylax-", dir=place))
        except OSError as error:
            reasons.append(f"{place}: {error.strerror}")
            continue
        if len(os.fsencode(folder)) <= _LONGEST:
            return OwnFolder(folder)
        folder.rmdir()
        reasons.append(f"{place}: its path is too long for a socket, at most {_LONGEST} bytes with a name of 16")
    raise SocketFolderError(
        f"socket files of workers have no place ({'; '.join(reasons)}): set TMPDIR to a folder with a short path that can "
        "be written, or tensor.transport=tcp"
    )


def _places() -> list[str]:
    """Folders to try, in order."""
    places = []
    try:
        places.append(tempfile.gettempdir())
    except OSError:  # none of TMPDIR and the usual ones can be written
        places.append(os.environ.get("TMPDIR", "/tmp"))
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):  # empty is as good as not set
        places.append(runtime)
    return list(dict.fromkeys([*places, *_SHORT]))
