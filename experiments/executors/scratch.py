"""Temporary folders of runs on a node, which do not outlast their process for long, however it ends."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from dorylax.store.durable import remove_leftovers, temporary_folder


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a temporary folder, after removal of those of killed processes; remove it at the end.

    Raises:
        OSError: The file system refuses.
    """
    path = Path(tempfile.gettempdir()) / "run"
    remove_leftovers(path.parent, path.name.__eq__)
    with temporary_folder(path) as folder:
        yield folder
