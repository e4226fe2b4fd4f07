"""Child processes of dorylax: their start, their first steps, messages to and from them, and their end.

`start` forks a warm process, which has imported the modules and has a single thread. A fork takes milliseconds; a new Python
imports JAX for one or two seconds, and a fork of a process with XLA's threads may hang. The owner starts a warm process at
the first call and sends it a request for each fork. It ends with its owner, and its forks with it. Every process has a
separate session: signals of terminals reach only the owner. `multiprocessing.forkserver` passes on neither environments nor
standard streams.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
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
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from subprocess import PIPE, Popen
from typing import IO, Any, BinaryIO, NamedTuple, cast, final

from dorylax.errors import RunError

_LONGEST_SECONDS = 60.0  # in which a warm process imports its modules and reports its first fork
_LONGEST_REQUEST = 100_000  # bytes, which a socket takes as one message
_LEAVING_SECONDS = 3.0  # for a process to end by itself after its owner has closed the pipe to it

_READ_LATE = frozenset({"TMPDIR", "NPROC", "PJRT_NPROC", "DORYLAX_CORES", "COLUMNS", "LINES", "PYTEST_CURRENT_TEST"})
"""Environment variables that modules do not read at import. A warm process serves environments that differ in these."""

_INHERITED = {"Umask", "Uid", "Gid", "Groups", "SigBlk", "SigIgn", "CapEff", "NoNewPrivs", "Seccomp", "Cpus_allowed"}
"""Lines of /proc/thread-self/status with attributes that a child inherits."""

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15  # <linux/prctl.h>


def start(
    entry: str,
    environment: Mapping[str, str],
    *,
    preload: Sequence[str],
    stdin: int = PIPE,
    stdout: int | None = PIPE,
    stderr: int | None = None,
    fork: bool | None = None,
) -> Popen[bytes] | Forked:
    """Call a function in a new process, which imports modules from this process's path.

    Args:
        entry: The function without arguments, as `MODULE:NAME`.
        environment: Environment variables of the process.
        preload: Modules for the warm process to import.
        stdin: `PIPE`, or an open descriptor.
        stdout: `PIPE`, or None for this process's standard output.
        stderr: `PIPE`, or None for this process's standard error.
        fork: Whether to fork it, on Linux; by default unless DORYLAX_FORK=0. If that fails it is a new Python.

    Raises:
        OSError: The system refuses.
    """
    if fork is None:
        fork = os.environ.get("DORYLAX_FORK") != "0"
    if fork and sys.platform == "linux":  # elsewhere libraries of the system may not survive a fork
        with contextlib.suppress(OSError), _LOCK:
            return _forked(entry, environment, preload, (stdin, stdout, stderr))
    module, _, name = entry.partition(":")
    return Popen(
        _python(f"from {module} import {name}; {name}()"),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        bufsize=0,
        env=dict(environment),
        start_new_session=True,
    )


@final
class Forked:
    """A forked process, with the attributes and methods of `subprocess.Popen` that its users need."""

    def __init__(self, pid: int, handle: int, status: int, streams: Sequence[IO[bytes] | None]) -> None:
        self.pid, self.returncode = pid, cast("int | None", None)
        self.stdin, self.stdout, self.stderr = streams
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

    def terminate(self) -> None:
        """See `subprocess.Popen`."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """See `subprocess.Popen`."""
        self.send_signal(signal.SIGKILL)

    def _has_ended(self, milliseconds: float | None) -> bool:
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        return bool(poll.poll(milliseconds))


def has_ended(process: Popen[bytes] | Forked, timeout: float) -> bool:
    """Wait up to `timeout` seconds for the end of a process, and return whether it has ended."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout)
        return True
    return False


def signal_name(number: int) -> str:
    """Return the name of a signal: `SIGKILL`, or `signal 99`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@final
class Worker:
    """A process that runs a function at the other end of a connection.

    If this process dies or loses the worker, the connection closes and the worker ends.

    Args:
        function: A function at the top of its module. It gets its end of the connection and the arguments.
        arguments: Pickled.

    Attributes:
        connection: This end of the connection.
        process: The process.
    """

    def __init__(self, function: Callable[..., None], *arguments: Any) -> None:
        self.connection, theirs = Pipe()
        with theirs:
            self.process = start(
                f"{__name__}:_work", os.environ, preload=(function.__module__,), stdin=theirs.fileno(), stdout=None
            )
        self.send((function.__module__, function.__name__, arguments))

    def send(self, message: Any) -> None:
        """Send a message; if the process has just died, `receive` reports it."""
        with contextlib.suppress(OSError):
            self.connection.send(message)

    def receive(self) -> Any:
        """Return the next message.

        Raises:
            RunError: The process has ended; the text says how, as the end of a sentence.
        """
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            code = self.process.wait()
            self.connection.close()
            raise RunError(_death(code)) from None

    def kill(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.wait()
        self.connection.close()

    def end(self, seconds: float) -> None:
        """Wait for the process to end, and kill it after some seconds."""
        end = time.monotonic() + seconds
        with contextlib.suppress(EOFError, OSError):  # its messages are read, so that it never waits for a reader
            while self.connection.poll(max(0.0, end - time.monotonic())):
                self.connection.recv()
        has_ended(self.process, max(0.0, end - time.monotonic()))
        self.kill()


def _death(code: int) -> str:
    """Describe the unexpected end of a worker with an exit code, as the end of a sentence."""
    if code >= 0:
        return f"ended with exit code {code}"
    hint = ", as the system does where memory is short: try fewer --jobs" if code == -signal.SIGKILL else ""
    return f"was killed by {signal_name(-code)}{hint}"


def begin(name: str) -> None:
    """Begin a child process called `name`: its owner handles Ctrl-C and ends it, and Linux kills it when its owner dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    call_this_process(name)


def end_with_parent() -> None:
    """Make Linux kill this process at the later end of the thread that started it, even if this process is stopped."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def call_this_process(name: str) -> None:
    """Show a name in the system's table of processes, of which Linux keeps 15 bytes; elsewhere nothing happens."""
    _prctl(_PR_SET_NAME, name.encode())


def _prctl(option: int, value: int | bytes) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def leave_with_owner(descriptor: int, at_end: Callable[[], None] = lambda: None) -> None:
    """End this process three seconds after its owner has closed the other end of a pipe or socket, whatever it computes.

    Args:
        descriptor: This end.
        at_end: Called in another thread when the other end is closed.
    """

    def leave() -> None:
        poll = select.poll()
        poll.register(descriptor, 0)  # the system reports a closed end without being asked
        poll.poll()
        at_end()
        time.sleep(_LEAVING_SECONDS)
        os._exit(0)

    threading.Thread(target=leave, name="owner", daemon=True).start()


def private_streams() -> tuple[BinaryIO, BinaryIO]:
    """Reserve standard input and output for the owner of this process, and return them.

    Afterwards, prints of Python and libraries go to the standard error, and their reads return end-of-file.
    """
    streams = os.fdopen(_private_input(), "rb"), os.fdopen(os.dup(1), "wb")
    sys.stdout.flush()
    os.dup2(2, 1)
    return streams


def _private_input() -> int:
    found = os.dup(0)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    return found


def _work() -> None:
    """Run the function of a `Worker`, whose connection is the standard input."""
    begin("dorylax run")
    connection: Connection[Any, Any] = Connection(_private_input())
    leave_with_owner(connection.fileno())
    with contextlib.suppress(EOFError):  # the owner has closed the connection
        module, name, arguments = connection.recv()
        getattr(importlib.import_module(module), name)(connection, *arguments)


class _Warm(NamedTuple):
    key: Any
    requests: socket.socket  # closed: it ends with its last fork
    process: Popen[bytes]


_LOCK = threading.Lock()
_WARM: list[_Warm] = []  # at most one of them takes requests
_UNFIT: set[Any] = set()  # keys of warm processes that could not be forked


def _python(code: str, *arguments: str) -> list[str]:
    """Return the command that runs code in a new Python with this one's path.

    The working directory is not on the path meanwhile, since it may contain foreign modules with names of Python's own.
    """
    return [sys.executable, "-P", "-c", f"import sys; sys.path[:] = {sys.path!r}; {code}", *arguments]


def _forked(
    entry: str, environment: Mapping[str, str], preload: Sequence[str], streams: Sequence[int | None]
) -> Forked:
    """Fork a warm process, started on demand; raises OSError if that fails."""
    status, limits = (Path(f"/proc/thread-self/{name}").read_text("utf-8", "replace") for name in ("status", "limits"))
    namespaces = sorted(map(os.readlink, Path("/proc/thread-self/ns").iterdir()))
    inherited = (*(one for one in status.splitlines() if one.split(":")[0] in _INHERITED), limits, *namespaces)
    read_early = frozenset((name, value) for name, value in environment.items() if name not in _READ_LATE)
    key = os.getpid(), os.getcwd(), sys.executable, tuple(sys.path), tuple(preload), inherited, read_early
    request = json.dumps([entry, dict(environment)]).encode("ascii")
    if key in _UNFIT or len(request) > _LONGEST_REQUEST:
        raise OSError("this process cannot be forked")
    for one in _WARM:
        if one.key != key or one.process.poll() is not None:
            one.requests.close()
    _WARM[:] = [one for one in _WARM if one.process.poll() is None]
    warm = next((one for one in _WARM if one.requests.fileno() >= 0), None)
    try:
        return _fork(warm or _warmed(key, environment, preload), request, streams)
    except BaseException as error:
        for one in _WARM:  # an unread answer must not be taken for that of a later request
            one.requests.close()
        if warm is None and isinstance(error, OSError):
            _UNFIT.add(key)
        raise


def _warmed(key: Any, environment: Mapping[str, str], preload: Sequence[str]) -> _Warm:
    requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    requests.settimeout(_LONGEST_SECONDS)
    command, env = _python(f"from {__name__} import main; main()", str(os.getpid()), *preload), dict(environment)
    with theirs, contextlib.ExitStack() as undo:
        undo.enter_context(requests)
        process = Popen(command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, env=env, start_new_session=True)
        undo.pop_all()
    _WARM.append(_Warm(key, requests, process))
    return _WARM[-1]


def _fork(warm: _Warm, request: bytes, streams: Sequence[int | None]) -> Forked:
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
        near, far = list[IO[bytes] | None](), list[int]()
        for number, stream in enumerate(streams):
            if stream != PIPE:
                near.append(None)
                far.append(number if stream is None else stream)
                continue
            ends = os.pipe()
            mine, other = ends[::-1] if number == 0 else ends
            theirs.callback(os.close, other)
            near.append(ours.enter_context(open(mine, "rb" if number else "wb", buffering=0)))
            far.append(other)
        socket.send_fds(warm.requests, [request], far)
        pid, descriptors, _, _ = socket.recv_fds(warm.requests, 32, 2, socket.MSG_CMSG_CLOEXEC)
        if not descriptors:
            raise ChildProcessError("the warm process has ended, or was refused a fork")
        ours.pop_all()
    return Forked(int(pid), descriptors[0], descriptors[1], near)


@atexit.register
def _end_all() -> None:
    while _WARM:
        _, requests, process = _WARM.pop()
        with requests, process:
            process.kill()


def main() -> None:
    """Live as the warm process, or as one of its forks, with the arguments OWNER MODULE…."""
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
            except OSError:  # the owner learns of it by the end of the socket
                watched.remove(requests)
                requests.close()
    os._exit(0)


def _become(request: bytes, streams: Sequence[int]) -> None:
    """Call the function of a request as a new Python would, with these standard streams."""
    entry, environment = json.loads(request)
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    module, _, name = entry.partition(":")
    getattr(importlib.import_module(module), name)()
