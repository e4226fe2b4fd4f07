"""The limits and the use of this process: cores, memory, address space, threads."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path
from typing import NamedTuple

# A run on tiny data maps 1,723 MiB on one core and 1,838 on two, and a pipeline 85 MiB more; XLA aborts with less. Of
# that 425 MiB are resident.
_MAPPED_BYTES = 1792 * 2**20
_MAPPED_BYTES_PER_CORE = 128 * 2**20
_LIBRARIES_BYTES = 400 * 2**20
_USUAL_STACK_BYTES = 8 * 2**20

# Capabilities that are exempt from the limit of a user's processes, as bits of CapEff in /proc/self/status.
_SYS_ADMIN, _SYS_RESOURCE = 21, 24


class Limit(NamedTuple):
    """Memory that a process may use.

    Attributes:
        bytes: The limit in bytes.
        source: "machine": the physical memory; "cgroup": a container's or a job's share; "address space": the limit of
            the process (`ulimit -v`) without the mappings of libraries and threads that are not resident; "ray": the
            reservation of a host on a cluster; "setting": the configured limit of the run.
    """

    bytes: int
    source: str

    @property
    def owner(self) -> str:
        """The owner of the memory, for messages."""
        return _OWNERS[self.source]


_OWNERS = {
    "machine": "this machine",
    "cgroup": "the control group of this process",
    "ray": "ray.memory",
    "setting": "single.memory_limit",
    "address space": "the address space of this process (ulimit -v)",
}


CORES = "DORYLAX_CORES"
"""The environment variable with the number of cores for this process."""


def cores() -> int:
    """Return the number of cores for this process: `DORYLAX_CORES`, or else the cores that it may run on."""
    share = os.environ.get(CORES, "")
    if share.isdecimal() and int(share):
        return int(share)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_limit(root: Path = Path("/")) -> Limit | None:
    """Return the least of physical memory, the limits of the process' control groups, and its address space.

    Args:
        root: The folder of `proc` and `sys`.

    Returns:
        The limit, or None if the system lacks this information.
    """
    found = [Limit(physical, "machine")] if (physical := physical_bytes()) is not None else []
    if (group := cgroup_bytes(root)) is not None:
        found.append(Limit(group, "cgroup"))
    if (space := address_space_bytes()) is not None:
        found.append(Limit(max(0, space - address_space_needed(0) + _LIBRARIES_BYTES), "address space"))
    return min(found, key=lambda limit: limit.bytes, default=None)


def physical_bytes() -> int | None:
    """Return the machine's memory, or None if it is unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def cgroup_bytes(root: Path = Path("/")) -> int | None:
    """Return the least limit of the process' control groups, of version 2 or 1, or None without a limit.

    Version 1 encodes "no limit" as a number near 2⁶³, which exceeds physical memory.
    """
    files = _limit_files(root, "memory", "memory.max", "memory.limit_in_bytes")
    return min((limit for file in files if (limit := _number(file)) is not None), default=None)


def address_space_bytes() -> int | None:
    """Return the limit of this process' address space (`ulimit -v`), or None without a limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def address_space_needed(threads: int) -> int:
    """Return the least address space of a process that computes with JAX.

    Args:
        threads: The number of threads. Their stacks count if they are larger than usual (`ulimit -s`).
    """
    stack, _ = resource.getrlimit(resource.RLIMIT_STACK)
    # An unlimited stack is one of 2 MiB for a thread.
    larger = 0 if stack == resource.RLIM_INFINITY else max(0, stack - _USUAL_STACK_BYTES)
    return _MAPPED_BYTES + _MAPPED_BYTES_PER_CORE * cores() + threads * larger


class ThreadLimit(NamedTuple):
    """Threads that may still be started.

    Attributes:
        left: The number of threads.
        source: "user": the limit of all this user's processes; "cgroup": that of a container or a job.
    """

    left: int
    source: str


def thread_limit(root: Path = Path("/")) -> ThreadLimit | None:
    """Return the rest of the user's limit (`ulimit -u`) or of the control groups' (`pids.max`), the smaller one.

    Args:
        root: The folder of `proc` and `sys`.

    Returns:
        The least, or None without a limit.
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
        return False  # users and capabilities are those of the namespace
    if os.getuid() == 0:
        return True
    capabilities = int(_status(root / "proc/self/status").get("CapEff", "0"), 16)
    return bool(capabilities >> _SYS_ADMIN & 1 or capabilities >> _SYS_RESOURCE & 1)


def _in_the_first_user_namespace(root: Path) -> bool:
    try:
        return (root / "proc/self/uid_map").read_text("ascii").split() == ["0", "0", str(2**32 - 1)]
    except OSError:  # a kernel without user namespaces
        return True


def _threads_of_user(root: Path) -> int:
    """Return the number of threads of all processes with this one's real user."""
    every = (_status(path) for path in (root / "proc").glob("[0-9]*/status"))
    mine = (one for one in every if one.get("Uid", "").split()[:1] == [str(os.getuid())])
    return sum(int(one.get("Threads", "1")) for one in mine)


def _status(path: Path) -> dict[str, str]:
    with contextlib.suppress(OSError):  # the process has just ended
        lines = path.read_text("utf-8", "replace").splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return {}


def resident_bytes() -> int:
    """Return the resident memory of this process, with mapped files; 0 if it is unknown."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _limit_files(root: Path, controller: str, name_now: str, name_before: str) -> list[Path]:
    """Return the possible limit files: of the group in each line of /proc/self/cgroup, and of its parents.

    The names are those of versions 2 and 1 of control groups; `controller` is that of version 1.
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
    """Return the peak resident memory of this process, with mapped files."""
    held = _status(Path("/proc/self/status")).get("VmHWM", "")  # the one of getrusage may be inherited from the parent
    if held.endswith(" kB"):
        return int(held.removesuffix(" kB")) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
