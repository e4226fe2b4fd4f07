"""The storage at a place that a user wrote, and verified local copies of stored files."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from dorylax.store.base import Content, Location, Storage, check_content, has_content, parse_place
from dorylax.store.durable import make_folder, remove_leftovers
from dorylax.store.local import LocalStorage
from dorylax.store.s3 import S3Storage


def open_storage(text: str) -> Storage:
    """Return the storage at a path or below `s3://bucket/prefix`, without any request.

    Raises:
        ValueError: The text is neither; the message follows the name of a setting.
        AwsError: boto3 is not installed, or cannot be set up.
    """
    place = parse_place(text)
    return S3Storage(place) if isinstance(place, Location) else LocalStorage(place)


def local_copy(storage: Storage, name: str, content: Content, folder: Path) -> Path:
    """Return the path of a verified local copy of a stored file; files of local storages are read in place.

    Args:
        storage: Storage of the file.
        name: Name of the file.
        content: Expected size and SHA-256.
        folder: Folder of copies, created if missing. The name of a copy is its SHA-256, so any number of processes, runs,
            and storages may share the folder. Only leftovers of killed processes are ever removed from it.

    Raises:
        FileNotFoundError: The storage has no such file.
        StorageError: The file has other content.
        OSError: The file cannot be read or copied.
    """
    if isinstance(storage, LocalStorage):
        path = storage.path(name)
        check_content(path, content, str(path))
        return path
    make_folder(folder)
    path = folder / content.sha256
    if not has_content(path, content):  # or damaged since: the download replaces it
        remove_leftovers(folder)
        storage.fetch(name, path, content)
    return path


@contextlib.contextmanager
def verified(storage: Storage, name: str, content: Content) -> Iterator[Path]:
    """Give the path of a stored file with verified content: in place, or a temporary copy; errors as of `local_copy`."""
    with contextlib.ExitStack() as stack:
        folder = Path()
        if not isinstance(storage, LocalStorage):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dorylax-copy-")))
        yield local_copy(storage, name, content, folder)
