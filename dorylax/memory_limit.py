"""What this process may use: the machine's memory, or its control group's where that is less; and what it uses now."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple


class Limit(NamedTuple):
    """Memory that a process may use.

    Attributes:
        bytes: how much.
        source: "machine": all there is; "cgroup": a container's or a job's share.
    """

    bytes: int
    source: str


def memory_limit(root: Path = Path("/")) -> Limit | None:
    """The least of physical memory and the limits of the process' control group and those above it.

    Args:
        root: where `proc` and `sys` lie.

    Returns:
        The limit; None where the system does not say.
    """
    found = [Limit(physical, "machine")] if (physical := physical_bytes()) is not None else []
    if (group := cgroup_bytes(root)) is not None:
        found.append(Limit(group, "cgroup"))
    return min(found, key=lambda limit: limit.bytes, default=None)


def physical_bytes() -> int | None:
    """The machine's memory; None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def cgroup_bytes(root: Path = Path("/")) -> int | None:
    """The least limit of the process' control groups, of version 2 or 1; None where there is none.

    Version 1 says "no limit" by a number near 2⁶³, which physical memory is below.
    """
    limits = [limit for file in _limit_files(root) if (limit := _number(file)) is not None]
    return min(limits, default=None)


def resident_bytes() -> int:
    """What this process holds in memory now, mapped files included; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _limit_files(root: Path) -> list[Path]:
    """Where limits may be: in the group of each line of /proc/self/cgroup, and in all groups above it."""
    try:
        lines = (root / "proc/self/cgroup").read_text("utf-8").splitlines()
    except OSError:
        return []
    files: list[Path] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            mount, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            mount, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        group = mount / path.strip("/")
        # A container may see paths of the host that do not exist inside it, where its own group is the mount's root.
        groups = [group, *(above for above in group.parents if above.is_relative_to(mount))]
        files += [above / name for above in groups]
    return files


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text("ascii"))
    except (OSError, ValueError):  # no such group; "max"
        return None
