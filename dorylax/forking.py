"""Start processes as forks of a warm process, which has imported their modules and has a single thread.

A fork takes milliseconds; a new Python imports JAX for one or two seconds. A fork of a process with XLA's threads may hang.
So the owner starts a warm process at the first call of `start` and sends it a request for each fork. The warm process ends
with its owner. `multiprocessing.forkserver` passes on neither environments nor standard streams.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple, cast, final

from dorylax.parent_death import call_this_process, end_with_parent

_LONGEST_SECONDS = 60.0  # for a warm process to import its modules and answer
_LONGEST_REQUEST = 100_000  # bytes, which a socket takes as one message

_READ_LATE = frozenset({"TMPDIR", "NPROC", "PJRT_NPROC", "DORYLAX_CORES", "COLUMNS", "LINES", "PYTEST_CURRENT_TEST"})
"""Environment variables that modules do not read at import. A warm process serves environments that differ in these."""

_INHERITED = {"Umask", "Uid", "Gid", "Groups", "SigBlk", "SigIgn", "CapEff", "NoNewPrivs", "Seccomp", "Cpus_allowed"}
"""Lines of /proc/thread-self/status with attributes that a child inherits."""


def start(
    module: str,
    environment: Mapping[str, str],
    *,
    preload: Sequence[str],
    stderr: bool = False,
    fork: bool | None = None,
) -> subprocess.Popen[bytes] | Forked:
    """Run the function `main` of a module in a process, in a session of its own, with pipes to its standard streams.

    Args:
        module: The module; `python -m MODULE` has to call its `main` too.
        environment: Environment variables of the process.
        preload: Modules for the warm process to import.
        stderr: Whether its standard error is a pipe too; otherwise it is that of this process.
        fork: Whether to fork it, on Linux; by default unless DORYLAX_FORK=0. If that fails it is a new Python.

    Raises:
        OSError: The system refuses.
    """
    if fork is None:
        fork = os.environ.get("DORYLAX_FORK") != "0"
    if fork and sys.platform == "linux":  # elsewhere libraries of the system may not survive a fork
        with contextlib.suppress(OSError), _LOCK:
            return _forked(module, environment, preload, stderr=stderr)
    pipe, errors, command = subprocess.PIPE, subprocess.PIPE if stderr else None, [sys.executable, "-m", module]
    return subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=errors, bufsize=0, env=dict(environment), start_new_session=True
    )


@final
class Forked:
    """A forked process, with the attributes and methods of `subprocess.Popen` that its users need."""

    def __init__(self, pid: int, handle: int, status: int, *streams: IO[bytes]) -> None:
        self.pid, self.returncode = pid, cast("int | None", None)
        self.stdin, self.stdout, self.stderr = streams[0], streams[1], streams[2] if streams[2:] else None
        self._handle, self._status, self._lock = handle, status, threading.Lock()
        for descriptor in (handle, status):  # not before: another thread may wait for it
            weakref.finalize(self, os.close, descriptor)

    def poll(self) -> int | None:
        """See `subprocess.Popen`. If its exit status is lost, the warm process has been killed and has taken it along."""
        with self._lock:
            if self.returncode is None and self._has_ended(0.0):
                self.returncode = int(os.read(self._status, 8) or -signal.SIGKILL)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """See `subprocess.Popen`."""
        self._has_ended(None if timeout is None else 1000 * timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired("a forked process", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """See `subprocess.Popen`."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        """See `subprocess.Popen`."""
        self.send_signal(signal.SIGKILL)

    def _has_ended(self, milliseconds: float | None) -> bool:
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        return bool(poll.poll(milliseconds))


class _Warm(NamedTuple):
    key: Any
    requests: socket.socket  # closed: it ends with its last fork
    process: subprocess.Popen[bytes]


_LOCK = threading.Lock()
_WARM: list[_Warm] = []  # at most one of them takes requests
_UNFIT: set[Any] = set()  # keys of warm processes that could not be forked


def _forked(module: str, environment: Mapping[str, str], preload: Sequence[str], *, stderr: bool) -> Forked:
    """Fork a warm process, started on demand; raises OSError if that fails."""
    status, limits = (Path(f"/proc/thread-self/{name}").read_text("utf-8", "replace") for name in ("status", "limits"))
    namespaces = sorted(map(os.readlink, Path("/proc/thread-self/ns").iterdir()))
    inherited = (*(one for one in status.splitlines() if one.split(":")[0] in _INHERITED), limits, *namespaces)
    read_early = frozenset((name, value) for name, value in environment.items() if name not in _READ_LATE)
    key = os.getpid(), os.getcwd(), sys.executable, tuple(preload), inherited, read_early
    request = json.dumps([module, dict(environment)]).encode("ascii")
    if key in _UNFIT or len(request) > _LONGEST_REQUEST:
        raise OSError("this process cannot be forked")
    for one in _WARM:
        if one.key != key or one.process.poll() is not None:
            one.requests.close()
    _WARM[:] = [one for one in _WARM if one.process.poll() is None]
    warm = next((one for one in _WARM if one.requests.fileno() >= 0), None)
    try:
        return _fork(warm or _warmed(key, environment, preload), request, stderr=stderr)
    except OSError:
        for one in _WARM:
            one.requests.close()
        if warm is None:
            _UNFIT.add(key)
        raise


def _warmed(key: Any, environment: Mapping[str, str], preload: Sequence[str]) -> _Warm:
    requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    requests.settimeout(_LONGEST_SECONDS)
    command, env = [sys.executable, "-m", __name__, str(os.getpid()), *preload], dict(environment)
    with theirs, contextlib.ExitStack() as undo:
        undo.enter_context(requests)
        silent = subprocess.DEVNULL
        process = subprocess.Popen(command, stdin=theirs.fileno(), stdout=silent, env=env, start_new_session=True)
        undo.pop_all()
    _WARM.append(_Warm(key, requests, process))
    return _WARM[-1]


def _fork(warm: _Warm, request: bytes, *, stderr: bool) -> Forked:
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
        streams, far = list[IO[bytes]](), [2]
        for mode in ("rb", "rb", "wb") if stderr else ("rb", "wb"):  # the last one is its standard input
            near, other = os.pipe() if mode == "rb" else os.pipe()[::-1]
            theirs.callback(os.close, other)
            streams.insert(0, ours.enter_context(open(near, mode, buffering=0)))
            far.insert(0, other)
        socket.send_fds(warm.requests, [request], far[:3])
        pid, descriptors, _, _ = socket.recv_fds(warm.requests, 32, 2, socket.MSG_CMSG_CLOEXEC)
        if not descriptors:
            raise ChildProcessError("the warm process has ended, or was refused a fork")
        ours.pop_all()
    return Forked(int(pid), descriptors[0], descriptors[1], *streams)


@atexit.register
def _end_all() -> None:
    while _WARM:
        _, requests, process = _WARM.pop()
        with requests, process:
            process.kill()


def main() -> None:
    """Live as the warm process, or as one of its forks: `python -m dorylax.forking OWNER MODULE…`."""
    call_this_process("dorylax warm")
    owner, *preload = sys.argv[1:]
    watched = os.pidfd_open(int(owner))
    for module in preload:
        __import__(module)  # which PYTHONPROFILEIMPORTTIME shows
    os.waitpid(os.fork() or os._exit(0), 0)  # at which threads of OpenBLAS end
    end = time.monotonic() + 1.0  # other threads that were joined may be listed for a moment
    while (threads := len(os.listdir("/proc/self/task"))) > 1 and time.monotonic() < end:
        time.sleep(0.001)
    if os.getppid() == int(owner) and threads == 1:
        gc.freeze()  # so that the collector does not write to pages that all forks share
        _become(*_serve(watched))


def _serve(owner: int) -> tuple[bytes, list[int]]:
    """Fork at each request and report how forks end, until the owner ends; returns arguments of `_become` in a fork."""
    this, requests = os.getpid(), socket.socket(fileno=0)
    forks: dict[int, tuple[int, int]] = {}  # process ids and pipes, by handle
    watched: set[Any] = {owner, requests}
    while forks or requests in watched:
        ready, _, _ = select.select([*watched, *forks], [], [])
        if owner in ready:
            break
        for handle in forks.keys() & ready:
            pid, tells = forks.pop(handle)
            _, status = os.waitpid(pid, 0)
            with contextlib.suppress(BrokenPipeError):
                os.write(tells, b"%d" % os.waitstatus_to_exitcode(status))
            os.close(tells)
            os.close(handle)
        if requests in ready:
            try:
                request, streams, _, _ = socket.recv_fds(requests, _LONGEST_REQUEST, 3)
                if not request:
                    raise BrokenPipeError("the owner needs no more forks")
                told, tells = os.pipe()
                if not (pid := os.fork()):
                    end_with_parent()
                    if os.getppid() != this:
                        os._exit(1)
                    others = (owner, told, tells, *forks, *(one for _, one in forks.values()), requests.detach())
                    for descriptor in others:
                        os.close(descriptor)
                    return request, streams
                handle = os.pidfd_open(pid)
                forks[handle] = pid, tells
                socket.send_fds(requests, [b"%d" % pid], [handle, told])
                for descriptor in (told, *streams):
                    os.close(descriptor)
            except OSError:  # the owner is told by the end of the socket
                watched.remove(requests)
                requests.close()
    os._exit(0)


def _become(request: bytes, streams: Sequence[int]) -> None:
    """Run a module's `main` as a new Python would, with these standard streams."""
    module, environment = json.loads(request)
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    importlib.import_module(module).main()


if __name__ == "__main__":
    main()
