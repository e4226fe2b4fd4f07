"""Data sets in the directory that the environment variable DORYLAX_DATA names: `<name>.npz` each.

The layout of the archives is `dorylax.graph.npz`'s, and `Dataset.from_npz` reads them.
"""

from __future__ import annotations

import os
from pathlib import Path

from dorylax.graph.datasets.base import DatasetError


def directory() -> Path | None:
    """The directory, or None where DORYLAX_DATA is not set.

    Raises:
        DatasetError: it names no directory.
    """
    value = os.environ.get("DORYLAX_DATA")
    if not value:
        return None
    path = Path(os.path.expanduser(value))
    if not path.is_dir():
        raise DatasetError(f"DORYLAX_DATA names {value!r}, which is not a directory: correct or unset it")
    return path


def find(name: str) -> Path | None:
    """The archive of the data set called `name`, where there is one."""
    folder = directory()
    if folder is None or Path(name).name != name:  # a name is never a path out of the directory
        return None
    file = folder / f"{name}.npz"
    return file if file.is_file() else None


def names() -> list[str]:
    """The names of all archives, in order."""
    folder = directory()
    return [] if folder is None else sorted(file.stem for file in folder.glob("*.npz") if not file.name.startswith("."))
