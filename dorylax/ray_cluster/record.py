"""The record of the local cluster that runs: where it is kept, what it says, and what a keeper that was killed has left."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, final

from dorylax.durable import remove_file, write_json
from dorylax.folder_lock import FolderHeldError, locked
from dorylax.graph.cache import cache_directory
from dorylax.settings.errors import ConfigError

TEMPORARY_PREFIX = "dorylax-ray-"
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_GONE_SECONDS = 10.0


class KeptNode(NamedTuple):
    """A node: Ray's id of it, in hexadecimal digits, and the process whose end is its end."""

    node: str
    process: int


@final
@dataclasses.dataclass(frozen=True)
class Record:
    """A local cluster.

    Attributes:
        process: of the keeper, which is also the session of all that it starts.
        boot: of the machine, since a process id says nothing after the next one.
        since: when the keeper has started, in seconds since 1970.
        temporary: the folder of all that its nodes write.
        address: HOST:PORT of the head; None while it starts.
        nodes: the head first.
    """

    FILE: ClassVar[str] = "cluster.json"

    process: int
    boot: str
    since: float
    temporary: str
    address: str | None = None
    nodes: Sequence[KeptNode] = ()

    def with_nodes(self, address: str, nodes: Sequence[KeptNode]) -> Record:
        """Of the cluster when it runs."""
        return dataclasses.replace(self, address=address, nodes=tuple(nodes))

    def write(self, folder: Path) -> None:
        """Writes it, in place of one that may be there.

        Raises:
            OSError: the file system refuses.
        """
        write_json(folder / self.FILE, dataclasses.asdict(self))

    @classmethod
    def read(cls, folder: Path) -> Record | None:
        """The record in a folder; None where there is none that can be read."""
        try:
            content: dict[str, Any] = json.loads((folder / cls.FILE).read_text("utf-8"))
            nodes = tuple(KeptNode(str(node), int(process)) for node, process in content.pop("nodes"))
            return cls(nodes=nodes, **content)
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def check(self) -> None:
        """Whether the cluster can be used; Ray ends a process that connects to one whose files are gone.

        Raises:
            ConfigError: it starts still, or its files are gone.
        """
        if self.address is None:
            raise ConfigError("the cluster of `dorylax cluster up` is only starting: wait for it")
        if not any(Path(self.temporary).glob("ray/session_*/sockets/raylet")):
            raise ConfigError(
                f"the files of the cluster of `dorylax cluster up` are gone from {self.temporary}: start it anew "
                "(`dorylax cluster down`, then up)"
            )

    @property
    def kept(self) -> bool:
        """Whether its keeper lives; the number of its process may be another one's by now."""
        return self.boot == boot_id() and self.process in _left_of(self.process, self.since)

    def clear(self, folder: Path) -> None:
        """Ends and removes what a keeper that was killed has left. To be called by who holds the folder's lock.

        Raises:
            OSError: the file system refuses.
        """
        if self.boot == boot_id():
            end = time.monotonic() + _GONE_SECONDS
            while (left := _left_of(self.process, self.since)) and time.monotonic() < end:
                for pid in left:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.02)
        if Path(self.temporary).name.startswith(TEMPORARY_PREFIX):
            shutil.rmtree(self.temporary, ignore_errors=True)
        remove_file(folder / self.FILE)


def record_folder() -> Path:
    """Where the record of this user's cluster on this machine is; several machines may share the cache directory."""
    return cache_directory().absolute() / "ray" / socket.gethostname()


def running() -> Record | None:
    """The record of the cluster that runs, or starts; None where none does. One whose keeper was killed is cleared."""
    return Record.read(record_folder()) if clear_stale() is None else None


def clear_stale() -> bool | None:
    """Removes what a keeper that was killed has left: whether there was something; None where a keeper lives.

    Raises:
        OSError: the file system refuses.
    """
    folder = record_folder()
    if not folder.is_dir():
        return False
    try:
        with locked(folder):
            record = Record.read(folder)
            if record is not None:
                record.clear(folder)
            return record is not None
    except FolderHeldError:
        return None


def boot_id() -> str:
    """Which start of this machine this is; empty where the system does not say."""
    try:
        return _BOOT.read_text("ascii").strip()
    except OSError:
        return ""


def _left_of(session: int, since: float) -> list[int]:
    """Processes of a session whose first process has started at `since`; none where its number is another one's by now.

    The number of a session is not given to a new process while any of the session lives.
    """
    found = []
    now, up = time.time(), float(Path("/proc/uptime").read_text("ascii").split()[0])
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # After the name, which may hold spaces and brackets: state, parent, group, session; the 22nd is the start.
            fields = path.read_text("utf-8", "replace").rpartition(")")[2].split()
            started = now - up + int(fields[19]) / os.sysconf("SC_CLK_TCK")
            if int(fields[3]) != session or fields[0] in "ZX":
                continue
            if int(path.parent.name) == session and started > since + 1.0:
                return []
            found.append(int(path.parent.name))
    return found
