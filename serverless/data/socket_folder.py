"""Creates private folders for socket files, with a path short enough for a socket."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import zmq

from dorylax.errors import RunError
from dorylax.own_folder import OwnFolder

# Alternatives to the temporary folder, whose path may be long in batch jobs. $XDG_RUNTIME_DIR is private to the user.
_SHORT = ("/tmp", "/var/tmp")
_LONGEST = zmq.IPC_PATH_MAX_LEN - len("/3fffff")  # a process id


def make_socket_folder() -> OwnFolder:
    """Create a private folder that holds only socket files, outside the temporary folder if its path is too long.

    Raises:
        RunError: No folder can be created. The message gives the reasons and the remedy.
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
    raise RunError(
        f"socket files of workers have no place ({'; '.join(reasons)}): set TMPDIR to a folder with a short path that can "
        "be written, or tensor.transport=tcp"
    )


def _places() -> list[str]:
    """Return candidate folders in order."""
    places = []
    try:
        places.append(tempfile.gettempdir())
    except OSError:  # neither TMPDIR nor the usual folders are writable
        places.append(os.environ.get("TMPDIR", "/tmp"))
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):  # may be empty
        places.append(runtime)
    return list(dict.fromkeys([*places, *_SHORT]))
