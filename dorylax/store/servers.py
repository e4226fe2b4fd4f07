"""servers.jsonl: a line of strict JSON per server and epoch of a pipeline.

No result depends on it. A run that continues from a checkpoint cuts the file back to the epochs before, so no epoch is in it
twice. docs/run-directory.md documents the fields. Lines of schema 1 have a digest each.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import final

from dorylax.errors import RunWarning
from dorylax.runs.servers import ServerMetrics, from_dict, to_dict
from dorylax.store.lines import append_lines, read_lines, sync_lines
from dorylax.store.run_directory import RunDirectoryError, write_text

SCHEMA = 2


@final
class ServersWriter:
    """Writer of servers.jsonl.

    Args:
        path: The file.
        epochs: Number of finished epochs, to which an existing file is cut back. If the file is damaged or lacks some of
            them, it is emptied, with a RunWarning.
    """

    def __init__(self, path: Path, epochs: int) -> None:
        self._path = path
        if not path.exists():
            return
        kept: list[str] = []
        try:
            lines = _lines(path)
            if lines and lines[-1][1].epoch < epochs - 1:
                raise _damaged(path, f"it has no line of epoch {epochs - 1}")
            kept = [text + "\n" for text, one in lines if one.epoch < epochs]
        except RunDirectoryError as error:
            if error.refused:
                raise
            warnings.warn(f"{error}. It begins anew with epoch {epochs}", RunWarning, stacklevel=2)
        write_text(path, "".join(kept))

    def write(self, servers: Sequence[ServerMetrics]) -> None:
        """Append the lines of an epoch."""
        if servers:
            append_lines(self._path, SCHEMA, map(to_dict, servers))

    def sync(self) -> None:
        """Flush the lines to disk."""
        if self._path.exists():
            sync_lines(self._path)


def read(path: Path) -> list[ServerMetrics]:
    """Return the records of all whole epochs, in order; each epoch has the same servers.

    Raises:
        RunDirectoryError: The file cannot be read, is damaged, lacks a line, or has a newer schema.
    """
    return [one for _, one in _lines(path)]


def _lines(path: Path) -> list[tuple[str, ServerMetrics]]:
    """Return each line of whole epochs with its record."""
    found = read_lines(path, SCHEMA, from_dict, _damaged)
    first = found[0][1].epoch if found else 0
    servers: list[str] = []  # of the first epoch
    for number, (_, one) in enumerate(found):
        name = f"{one.kind} server {one.server}"
        if number == len(servers) and one.epoch == first and name not in servers:
            servers.append(name)
            continue
        epoch, place = divmod(number, len(servers))
        if (one.epoch, name) != (first + epoch, servers[place]):
            due = f"{servers[place]} in epoch {first + epoch}"
            raise _damaged(path, f"line {number + 1}: it is of {name} in epoch {one.epoch}, not {due}")
    return found[: len(found) - len(found) % len(servers)] if servers else []


def _damaged(path: Path, reason: object) -> RunDirectoryError:
    return RunDirectoryError(
        f"{path} is damaged ({reason}): it cannot be written again, and nothing is computed from it", damaged=True
    )
