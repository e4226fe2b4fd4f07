"""What this process may use of its machine, and uses now: cores, memory, address space, threads."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path
from typing import NamedTuple

# What a run on tiny data maps at its peak, and fails without, by an abort inside XLA: 1,723 MiB on one core and 1,838 on
# two; with a pipeline 85 more. Of that 425 MiB are resident.
_MAPPED_BYTES = 1792 * 2**20
_MAPPED_BYTES_PER_CORE = 128 * 2**20
_LIBRARIES_BYTES = 400 * 2**20
_USUAL_STACK_BYTES = 8 * 2**20

# Capabilities that the limit of a user's processes does not bind, as bits of CapEff in /proc/self/status.
_SYS_ADMIN, _SYS_RESOURCE = 21, 24


class Limit(NamedTuple):
    """Memory that a process may use.

    Attributes:
        bytes: how much.
        source: "machine": all there is; "cgroup": a container's or a job's share; "address space": what a limit of the
            process (`ulimit -v`) leaves beside what libraries and threads map and do not hold; "ray": what a host on a
            cluster asks for; "setting": what the run is to use.
    """

    bytes: int
    source: str

    @property
    def owner(self) -> str:
        """Who has so much, in a message."""
        return _OWNERS[self.source]


_OWNERS = {
    "machine": "this machine",
    "cgroup": "the control group of this process",
    "ray": "ray.memory",
    "setting": "single.memory_limit",
    "address space": "the address space of this process (ulimit -v)",
}


CORES = "DORYLAX_CORES"
"""The environment variable that says how many cores are this process's share of its machine."""


def cores() -> int:
    """Cores that this process may use: its share, where the environment says one, else those that it may run on."""
    share = os.environ.get(CORES, "")
    if share.isdecimal() and int(share):
        return int(share)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_limit(root: Path = Path("/")) -> Limit | None:
    """The least of physical memory, the limits of the process' control group and those above it, and its address space.

    Args:
        root: where `proc` and `sys` lie.

    Returns:
        The limit; None where the system does not say.
    """
    found = [Limit(physical, "machine")] if (physical := physical_bytes()) is not None else []
    if (group := cgroup_bytes(root)) is not None:
        found.append(Limit(group, "cgroup"))
    if (space := address_space_bytes()) is not None:
        found.append(Limit(max(0, space - address_space_needed(0) + _LIBRARIES_BYTES), "address space"))
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
    files = _limit_files(root, "memory", "memory.max", "memory.limit_in_bytes")
    return min((limit for file in files if (limit := _number(file)) is not None), default=None)


def address_space_bytes() -> int | None:
    """The limit of this process' address space (`ulimit -v`); None where there is none."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def address_space_needed(threads: int) -> int:
    """What a process that computes with JAX maps at least.

    Args:
        threads: of the process; stacks count where they are larger than usual (`ulimit -s`).
    """
    stack, _ = resource.getrlimit(resource.RLIMIT_STACK)
    # An unlimited stack is one of 2 MiB for a thread.
    larger = 0 if stack == resource.RLIM_INFINITY else max(0, stack - _USUAL_STACK_BYTES)
    return _MAPPED_BYTES + _MAPPED_BYTES_PER_CORE * cores() + threads * larger


class ThreadLimit(NamedTuple):
    """Threads that may still be started.

    Attributes:
        left: how many.
        source: "user": of all this user's processes; "cgroup": of a container or a job.
    """

    left: int
    source: str


def thread_limit(root: Path = Path("/")) -> ThreadLimit | None:
    """What is left of the user's limit (`ulimit -u`) or of the control groups' (`pids.max`), where that is less.

    Args:
        root: where `proc` and `sys` lie.

    Returns:
        The least; None where nothing limits threads.
    """
    found = []
    for file in _limit_files(root, "pids", "pids.max", "pids.max"):
        most, now = _number(file), _number(file.with_name("pids.current"))
        if most is not None and now is not None:
            found.append(ThreadLimit(max(0, most - now), "cgroup"))
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft != resource.RLIM_INFINITY and not _above_the_users_limit(root):
        found.append(ThreadLimit(max(0, soft - _threads_of_user(root)), "user"))
    return min(found, key=lambda limit: limit.left, default=None)


def _above_the_users_limit(root: Path) -> bool:
    if not _in_the_first_user_namespace(root):
        return False  # whatever it says of users and capabilities holds inside of it alone
    if os.getuid() == 0:
        return True
    capabilities = int(_status(root / "proc/self/status").get("CapEff", "0"), 16)
    return bool(capabilities >> _SYS_ADMIN & 1 or capabilities >> _SYS_RESOURCE & 1)


def _in_the_first_user_namespace(root: Path) -> bool:
    try:
        return (root / "proc/self/uid_map").read_text("ascii").split() == ["0", "0", str(2**32 - 1)]
    except OSError:  # a kernel that has no others
        return True


def _threads_of_user(root: Path) -> int:
    """Of all processes that run as this one's real user."""
    every = (_status(path) for path in (root / "proc").glob("[0-9]*/status"))
    mine = (one for one in every if one.get("Uid", "").split()[:1] == [str(os.getuid())])
    return sum(int(one.get("Threads", "1")) for one in mine)


def _status(path: Path) -> dict[str, str]:
    with contextlib.suppress(OSError):  # it has just ended
        lines = path.read_text("utf-8", "replace").splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return {}


def resident_bytes() -> int:
    """What this process holds in memory now, mapped files included; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _limit_files(root: Path, controller: str, name_now: str, name_before: str) -> list[Path]:
    """Where limits may be: in the group of each line of /proc/self/cgroup, and in all groups above it.

    Args:
        root: where `proc` and `sys` lie.
        controller: of version 1.
        name_now: of the file in version 2.
        name_before: in version 1.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text("utf-8").splitlines()
    except OSError:
        return []
    files: list[Path] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            mount, name = root / "sys/fs/cgroup", name_now
        elif controller in controllers.split(","):
            mount, name = root / "sys/fs/cgroup" / controller, name_before
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


def peak_bytes() -> int:
    """The most that this process has held in memory so far, mapped files included."""
    held = _status(Path("/proc/self/status")).get("VmHWM", "")  # what getrusage says a process may have from its parent
    if held.endswith(" kB"):
        return int(held.removesuffix(" kB")) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
