"""Text files that the user names: a wrong name is the user's, a disk that fails is the machine's."""

from __future__ import annotations

import errno
from pathlib import Path

from dorylax.errors import named
from dorylax.settings.errors import ConfigError

_OF_THE_NAME = {
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG),
    *(errno.EACCES, errno.EPERM),
}
"""What is wrong with what the user has named; anything else is the machine's."""
_MOST = 1 << 24


def read_text(path: Path) -> str:
    """The text of a file.

    Raises:
        ConfigError: there is no such file, it may not be read, it is too long, or it is not text; says which.
        OSError: the machine fails to read it (a bad disk, too many open files); names the file.
    """
    try:
        with named(path), path.open(encoding="utf-8") as file:
            text = file.read(_MOST + 1)
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a text file in UTF-8") from None
    except OSError as error:
        if error.errno not in _OF_THE_NAME:
            raise
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    if len(text) > _MOST:  # perhaps without an end: /dev/zero
        raise ConfigError(f"{path} has more than {_MOST:,} characters: give a file of settings")
    return text
