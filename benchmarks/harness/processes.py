"""What a process and those below it hold, as Linux tells it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple


class Held(NamedTuple):
    """What one process holds.

    Attributes:
        rss: resident bytes, pages that it shares included.
        pss: the same, of a shared page its share alone, which depends on what other processes do.
        own: of these, what it has allocated: pages of no file.
        descriptors: that are open.
        threads: that it has.
    """

    rss: int
    pss: int
    own: int
    descriptors: int
    threads: int


def below(pid: int) -> list[int]:
    """The living processes that a process has started, and those that these have, in the order of their ids."""
    found = []
    with contextlib.suppress(OSError):  # it has ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *below(child)]
    return sorted(found)


def held(pid: int) -> Held | None:
    """What a process holds now; None where it has ended."""
    process = Path(f"/proc/{pid}")
    try:
        memory = _numbers((process / "smaps_rollup").read_text())
        threads = _numbers((process / "status").read_text())["Threads"]
        descriptors = len(list((process / "fd").iterdir()))
    except (OSError, KeyError):
        return None
    return Held(1024 * memory["Rss"], 1024 * memory["Pss"], 1024 * memory["Anonymous"], descriptors, threads)


def in_shared_memory(pid: int) -> set[Path]:
    """The files in /dev/shm that a process has open or maps; none where it has ended."""
    found = set()
    for folder in (Path(f"/proc/{pid}/fd"), Path(f"/proc/{pid}/map_files")):
        with contextlib.suppress(OSError):
            for link in folder.iterdir():
                with contextlib.suppress(OSError):  # closed meanwhile
                    found.add(link.readlink())
    return {path for path in found if path.is_relative_to("/dev/shm") and not path.name.endswith(" (deleted)")}


def _numbers(text: str) -> dict[str, int]:
    """The lines `Name:   12 kB`, by name."""
    words = [line.split() for line in text.splitlines()]
    return {line[0].removesuffix(":"): int(line[1]) for line in words if len(line) > 1 and line[1].isdecimal()}
