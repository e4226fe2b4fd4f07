"""Reader of text files that the user names."""

from __future__ import annotations

import errno
from pathlib import Path

from dorylax.errors import named
from dorylax.settings.errors import ConfigError

_USER_ERRORS = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EACCES, errno.EPERM}
"""Errors of a wrong name; all others are failures of the machine."""
_MOST = 1 << 24


def read_text(path: Path) -> str:
    """Return the text of a file.

    Raises:
        ConfigError: The file does not exist, may not be read, is too long, or is not text; the message says which.
        OSError: The machine fails to read the file (a bad disk, too many open files); the error names it.
    """
    try:
        with named(path), path.open(encoding="utf-8") as file:
            text = file.read(_MOST + 1)
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a text file in UTF-8") from None
    except OSError as error:
        if error.errno not in _USER_ERRORS:
            raise
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    if len(text) > _MOST:  # perhaps without an end: /dev/zero
        raise ConfigError(f"{path} has more than {_MOST:,} characters: give a file of settings")
    return text
