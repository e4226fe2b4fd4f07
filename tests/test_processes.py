"""Forked processes and workers: their attributes, their ends, and the end of the warm process."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.leftovers import children
from support.other_ends import echo, sleep
from support.processes import LONG, alive, until

from dorylax import processes
from dorylax.pipeline.hosts import processes as hosts
from dorylax.serverless.backends.local import process as workers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")

_MODULE = "support.forked"


@pytest.fixture(autouse=True)
def own_warm_processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(processes, "_WARM", [])
    monkeypatch.setattr(processes, "_UNFIT", set())
    yield
    processes._end_all()


def environment(**changed: str) -> dict[str, str]:
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, **changed}


@contextlib.contextmanager
def running(preload: tuple[str, ...] = (_MODULE,), env: dict[str, str] | None = None, **options: Any) -> Iterator[Any]:
    child = processes.start(f"{_MODULE}:main", environment() if env is None else env, preload=preload, **options)
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        for pipe in filter(None, (child.stdin, child.stdout, child.stderr)):
            pipe.close()


def state(**options: Any) -> dict[str, Any]:
    """The attributes of a child, as it sees them."""
    with running(**options) as child:
        child.stdin.write(b"tell\n")
        return json.loads(child.stdout.readline())


def warm() -> list[int]:
    return [one.process.pid for one in processes._WARM]


def test_a_fork_is_as_a_new_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = state()
    monkeypatch.chdir(tmp_path)
    assert state()["folder"] == str(tmp_path)
    given = environment(TMPDIR=str(tmp_path), COLUMNS="77")
    del given["HOME"]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    umask, mask = os.umask(0o027), signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    try:
        assert state(env=given)["inherited"][0] != before["inherited"][0]
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
        forked, new = (state(env=given, fork=fork) for fork in (True, False))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.umask(umask)
    assert forked["parent"] == warm()[-1]
    assert new["parent"] == os.getpid()
    assert forked["session"] == forked["pid"]
    assert forked["name"] == "forked in tests"
    same = ("environment", "folder", "path", "temporary", "inherited", "limits", "descriptors")
    assert {key: forked[key] for key in same} == {key: new[key] for key in same}


def test_forks_draw_other_numbers() -> None:
    first, second = (state(preload=(_MODULE, "numpy.random")) for _ in range(2))
    assert first["parent"] == second["parent"]
    assert not set(first["drawn"]) & set(second["drawn"])


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ("exit 0", 0),
        ("exit 7", 7),
        ("raise", 1),
        (f"signal {signal.SIGKILL:d}", -9),
        (f"signal {signal.SIGABRT:d}", -6),
    ],
)
def test_its_exit_status_is_known(asked: str, code: int) -> None:
    with running(stderr=subprocess.PIPE) as child:
        assert child.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.01)
        child.stdin.write(f"{asked}\n".encode())
        assert child.wait(LONG) == child.poll() == child.returncode == code
        assert (b"ArithmeticError: as asked" in child.stderr.read()) == (asked == "raise")
        child.kill()  # does nothing
    with running() as child:
        child.send_signal(signal.SIGTERM)
        assert child.wait(LONG) == -signal.SIGTERM


@pytest.mark.parametrize("room", [hosts, workers])
def test_modules_of_hosts_and_workers_start_nothing(room: Any) -> None:
    found = state(preload=room._PRELOAD)
    assert found["parent"] == warm()[0]  # which had one thread
    assert found["backends"] is False
    assert found["descriptors"] == ["0", "1", "2"]
    assert {"jax", *room._PRELOAD} <= set(found["modules"])


def test_one_warm_process_serves_until_the_environment_changes(tmp_path: Path) -> None:
    with running() as first:
        assert state(env=environment(TMPDIR=str(tmp_path)))["temporary"] == str(tmp_path)
        (before,) = warm()
        found = state(env=environment(XLA_FLAGS="--xla_cpu_enable_fast_math=false"))
        assert warm() == [before, found["parent"]]
        assert first.poll() is None
    until(lambda: before not in {one.pid for one in alive()})
    state()
    assert before not in warm()


def test_a_killed_warm_process_loses_its_forks_and_is_replaced() -> None:
    with running() as child:
        (pid,) = warm()
        os.kill(pid, signal.SIGKILL)
        assert child.stdout.read() == b""
        assert child.wait(LONG) == -signal.SIGKILL
        assert state()["parent"] not in {pid, os.getpid()}


def test_a_warm_process_with_threads_is_not_forked(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(3600,), daemon=True).start()\n"
        f"open({str(tmp_path / 'starts')!r}, 'a').write('x')"
    )
    given = environment()
    given["PYTHONPATH"] = os.pathsep.join([str(tmp_path), given["PYTHONPATH"]])
    before = children()
    for _ in range(2):
        with running(env=given) as child:
            assert isinstance(child, subprocess.Popen)
            assert children() - before == {child.pid}
            child.stdin.write(b"tell\n")
            child.stdout.readline()
    assert (tmp_path / "starts").read_text() == "xxx"  # of a warm process and two new ones
    processes._end_all()
    with running(env=environment(LONG="x" * 120_000)) as child:  # no message
        assert isinstance(child, subprocess.Popen)
        assert warm() == []


_OWNER = f"""
import os, sys
from dorylax import processes
child = processes.start("{_MODULE}:main", os.environ, preload=())
if sys.argv[1] == "forks" and not os.fork():
    sys.exit()
child.stdin.write(b"tell\\n")
child.stdout.readline()
print(child.pid, processes._WARM[0].process.pid, flush=True)
sys.stdin.readline()
print(child.poll(), flush=True)
if sys.argv[1] == "raises":
    raise ArithmeticError
"""


@pytest.mark.parametrize("end", ["returns", "raises", "killed", "forks"])
def test_nothing_outlives_its_owner(end: str) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", _OWNER, end],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(),
        text=True,
    )
    with owner:
        assert owner.stdin is not None
        assert owner.stdout is not None
        pids = [int(pid) for pid in owner.stdout.readline().split()]
        ends = [os.pidfd_open(pid) for pid in pids]
        if end == "killed":
            os.kill(pids[0], signal.SIGSTOP)
            owner.kill()
        else:
            owner.stdin.write("\n")
            owner.stdin.flush()
            assert owner.stdout.readline() == "None\n"
    for descriptor in ends:
        assert select.select([descriptor], [], [], LONG)[0]
        os.close(descriptor)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (-signal.SIGKILL, "was killed by SIGKILL, as the system does where memory is short: try fewer --jobs"),
        (-signal.SIGSEGV, "was killed by SIGSEGV"),
        (-60, "was killed by signal 60"),
        (1, "ended with exit code 1"),
    ],
)
def test_what_killed_a_worker_is_said(code: int, words: str) -> None:
    assert processes._death(code) == words


@pytest.mark.parametrize("fork", ["0", "1"])
def test_a_worker_answers_and_ends_with_its_connection(fork: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DORYLAX_FORK", fork)
    before = children()
    worker = processes.Worker(echo, 40)
    worker.send(2)
    assert worker.receive() == (worker.process.pid, 42)
    assert children() - before == {worker.process.pid}
    worker.connection.close()
    assert worker.process.wait(LONG) == 0


def test_a_busy_worker_ends_soon_after_its_owner_has_lost_it() -> None:
    worker = processes.Worker(sleep)
    assert worker.receive() == "asleep"
    worker.connection.close()
    assert worker.process.wait(LONG) == 0
