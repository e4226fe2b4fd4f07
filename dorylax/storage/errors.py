"""What goes wrong with files in a storage."""

from __future__ import annotations

from typing import final

from dorylax.errors import DorylaxError


class StorageError(DorylaxError, OSError):
    """A storage refuses, or a file in it is not what it should be; the text is one line that names the URL or path."""


@final
class NotThereError(StorageError, FileNotFoundError):
    """There is no file of that name."""
