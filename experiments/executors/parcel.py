"""A run's directory as bytes, to go from one machine to another."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from dorylax.store.durable import leftover_of
from dorylax.store.folder_lock import LOCK


def pack(folder: Path) -> bytes:
    """All files below a folder, without locks and what was not written to its end.

    Raises:
        OSError: the file system refuses.
    """

    def kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        path = Path(entry.name)
        return None if path.name == LOCK or leftover_of(path) is not None else entry

    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz", compresslevel=1) as archive:
        archive.add(folder, arcname=".", filter=kept)
    return stream.getvalue()


def unpack(parcel: bytes, folder: Path) -> None:
    """Writes what `pack` gave into a folder, which is made if need be; nothing outside of it.

    Raises:
        OSError: the file system refuses.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(parcel), mode="r:gz") as archive:
        archive.extractall(folder, filter="data")
