"""The folder for socket files of the data plane: new, for this user only, of a path short enough for a socket.

It goes with its process even if that is killed: a shell that is nobody's child waits for the end of a pipe from it. So Ray,
which kills a process with its children, does not reach the shell.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import BinaryIO, final

import zmq

from dorylax.errors import DorylaxError

# Tried after the temporary folder itself, which may be long (those of batch jobs are): $XDG_RUNTIME_DIR is its user's alone.
_SHORT = ("/tmp", "/var/tmp")
_LONGEST = zmq.IPC_PATH_MAX_LEN - len("/3fffff")  # a process id


# The part in brackets outlives the shell that starts it; it keeps none of this process's streams.
_REMOVE_IN_THE_END = 'exec 3<&0; (read -r nothing <&3; rm -rf -- "$1") </dev/null >/dev/null 2>&1 &'


class SocketFolderError(DorylaxError, OSError):
    """There is no place for socket files."""


@final
class SocketFolder:
    """A folder of sockets, made by `make_socket_folder`.

    Attributes:
        path: where it is.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._held = _held(path)

    def remove(self) -> None:
        """Removes it with all that is in it; a second call does nothing."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._held.close()


def make_socket_folder() -> SocketFolder:
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
            return SocketFolder(folder)
        folder.rmdir()
        reasons.append(f"{place}: its path is too long for a socket, at most {_LONGEST} bytes with a name of 16")
    raise SocketFolderError(
        f"socket files of workers have no place ({'; '.join(reasons)}): set TMPDIR to a folder with a short path that can "
        "be written, or tensor.transport=tcp"
    )


def _held(path: Path) -> BinaryIO:
    """A pipe whose end, with this process at the latest, removes a folder."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as end, contextlib.suppress(OSError):  # without a shell nobody removes it
        command = ["/bin/sh", "-c", _REMOVE_IN_THE_END, "sh", str(path)]
        nothing = subprocess.DEVNULL
        subprocess.run(command, check=False, stdin=end, stdout=nothing, stderr=nothing, start_new_session=True)
    return os.fdopen(writing, "wb")


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
