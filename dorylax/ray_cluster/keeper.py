"""The process that keeps a local cluster: `python -m dorylax.ray_cluster.keeper`, started by `local`.

It holds the lock of the record's folder for as long as the cluster runs, so that there is never a second one, and whether
one runs needs no guessing from process ids. It starts the nodes, writes the record, says so in a line on its standard
output, and waits for SIGTERM, or for the end of the head. Then it kills everything below it: orphans become its own
children.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from dorylax.durable import remove_file
from dorylax.folder_lock import FolderHeldError, locked
from dorylax.ray_cluster.record import TEMPORARY_PREFIX, KeptNode, Record, boot_id

_PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>
_OBJECT_STORE_BYTES = 100 * 2**20
_LONGEST = 34
"""Bytes of the path of the temporary folder: Ray adds up to 72 for a socket's name, of which the system allows 107."""
_LOOPBACK = "127.0.0.1"
_GONE_SECONDS = 30.0
_LOOKING_SECONDS = 5.0


def main() -> int:
    """Lives."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):  # what Ray prints; the terminal may go while the cluster stays
        os.dup2(nothing, descriptor)
    if os.fork():
        os._exit(0)  # so that it is nobody's child
    os.setsid()

    def say(**line: Any) -> None:
        with contextlib.suppress(OSError):  # nobody listens any more
            answers.write(json.dumps(line) + "\n")
            answers.flush()

    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, _end)
    try:
        asked = json.loads(requests.readline())
        with _held(Path(asked["folder"])) as folder:
            _keep(folder, asked, requests, say)
    except FolderHeldError as error:
        say(held=error.holder)
    except _Ended:
        pass
    except Exception as error:
        say(error=" ".join(str(error).split()) or type(error).__name__)
        return 1
    return 0


class _Ended(BaseException):
    """SIGTERM."""


def _end(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise _Ended


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[Path]:
    """The folder, locked; who only looks whether a cluster runs is waited for.

    Raises:
        FolderHeldError: there is another keeper.
    """
    end = time.monotonic() + _LOOKING_SECONDS
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(locked(folder))
                break
            except FolderHeldError:
                if Record.read(folder) is not None or time.monotonic() > end:
                    raise
                time.sleep(0.05)
        yield folder


def _keep(folder: Path, asked: dict[str, Any], requests: BinaryIO, say: Callable[..., None]) -> None:
    """Starts the cluster, and returns when its head has ended."""
    stale = Record.read(folder)
    if stale is not None:
        stale.clear(folder)
    temporary = _temporary_folder()
    started = threading.Event()
    threading.Thread(target=_end_unless, args=(requests, started), daemon=True).start()
    try:
        os.environ |= {"RAY_TMPDIR": str(temporary), "TMPDIR": str(temporary), "RAY_USAGE_STATS_ENABLED": "0"}
        os.environ.pop("RAY_ADDRESS", None)
        tempfile.tempdir = None
        (temporary / "ray").mkdir()
        record = Record(os.getpid(), boot_id(), time.time(), str(temporary))
        record.write(folder)  # before anything is started, so that whoever comes later finds it all
        cluster, record = _start(record, asked)
        signal.signal(signal.SIGTERM, _end)  # Ray has one of its own
        record.write(folder)
        started.set()
        say(address=record.address)
        nodes = cluster.list_all_nodes()
        # Each is asked, so that what has ended of it is no zombie.
        while [node.remaining_processes_alive() for node in nodes][0]:  # noqa: RUF015
            time.sleep(1.0)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        kill_all_below()
        shutil.rmtree(temporary, ignore_errors=True)
        remove_file(folder / Record.FILE)


def _start(record: Record, asked: dict[str, Any]) -> tuple[Any, Record]:
    from ray.cluster_utils import Cluster  # late: it takes seconds, in which the end of the input must be seen

    if asked["port"]:
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection((_LOOPBACK, asked["port"]), timeout=1.0).close()
            raise OSError(f"somebody listens at port {asked['port']} already: give another --port")
    cluster = Cluster(shutdown_at_exit=True)
    usual: dict[str, Any] = {"node_ip_address": _LOOPBACK, "object_store_memory": _OBJECT_STORE_BYTES}
    cluster.add_node(num_cpus=0, gcs_server_port=asked["port"], include_dashboard=False, no_monitor=True, **usual)
    nodes: list[Any] = [cluster.head_node]
    for _ in range(asked["nodes"]):
        nodes.append(cluster.add_node(num_cpus=asked["cpus_per_node"], **usual))
    kept = [KeptNode(node.node_id, node.all_processes["raylet"][0].process.pid) for node in nodes]
    return cluster, record.with_nodes(cluster.address, kept)


def _temporary_folder() -> Path:
    """For everything that nodes and what runs on them write."""
    for place in dict.fromkeys((tempfile.gettempdir(), "/tmp", "/var/tmp")):
        with contextlib.suppress(OSError):
            folder = Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX, dir=place))
            if len(os.fsencode(folder)) <= _LONGEST:
                return folder
            folder.rmdir()
    raise OSError(
        f"there is no temporary folder with a path short enough for sockets (at most {_LONGEST} bytes): set TMPDIR to a "
        "short one that can be written"
    )


def _end_unless(requests: BinaryIO, started: threading.Event) -> None:
    """Ends this process if whoever has asked for the cluster is gone before there is one."""
    requests.read()
    if not started.is_set():
        os.kill(os.getpid(), signal.SIGTERM)


def kill_all_below() -> None:
    """Kills all children, and theirs as they become this process's."""
    end = time.monotonic() + _GONE_SECONDS
    while time.monotonic() < end:
        for children in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                for pid in children.read_text("ascii").split():
                    os.kill(int(pid), signal.SIGKILL)
        try:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.01)
        except ChildProcessError:
            return


if __name__ == "__main__":
    os._exit(main())  # without what Ray does at the end, to processes that are gone
