"""A folder that is removed with its process, even if that is killed: a detached shell waits for the end of a pipe.

The shell is no child of the process, so that it outlives a kill of the process with its children, such as Ray's.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import BinaryIO, final

# The part in brackets outlives the shell that starts it; it keeps none of this process's streams.
_REMOVE_IN_THE_END = 'exec 3<&0; (read -r nothing <&3; rm -rf -- "$1") </dev/null >/dev/null 2>&1 &'


@final
class OwnFolder:
    """An existing folder, which is removed with its content.

    Args:
        path: Path of the folder.

    Attributes:
        path: Path of the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._held = _held(path)

    def remove(self) -> None:
        """Remove the folder. Idempotent."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._held.close()


def _held(path: Path) -> BinaryIO:
    """Return a pipe whose end, with this process at the latest, removes a folder."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as end, contextlib.suppress(OSError):  # without a shell, a killed process leaves it
        command = ["/bin/sh", "-c", _REMOVE_IN_THE_END, "sh", str(path)]
        nothing = subprocess.DEVNULL
        subprocess.run(command, check=False, stdin=end, stdout=nothing, stderr=nothing, start_new_session=True)
    return os.fdopen(writing, "wb")
