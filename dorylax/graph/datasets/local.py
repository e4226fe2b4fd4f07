"""Data sets on this machine: paths, and names in the directory of the environment variable DORYLAX_DATA.

A data set is a folder (`dorylax.graph.array_folder`), or an old archive `<name>.npz`.
"""

from __future__ import annotations

import os
from pathlib import Path

from dorylax.graph.datasets.base import DatasetError
from dorylax.graph.manifest import is_array_folder


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
    """Return the folder or archive of a name in DORYLAX_DATA; None if there is none."""
    folder = directory()
    if folder is None or not name or Path(name).name != name:  # a name is never a path out of the directory
        return None
    if is_array_folder(folder / name):
        return folder / name
    file = folder / f"{name}.npz"
    return file if file.is_file() else None


def names() -> list[str]:
    """Return the names of all data sets in DORYLAX_DATA in order."""
    folder = directory()
    found = [] if folder is None else [path for path in folder.iterdir() if not path.name.startswith(".")]
    return sorted({path.name.removesuffix(".npz") for path in found if path.suffix == ".npz" or is_array_folder(path)})
