"""A training process gets a signal, or loses its terminal, while its workers are stopped, spin or read what never comes."""

from __future__ import annotations

import dataclasses
import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Literal, NamedTuple, final

from dorylax.serverless.backends.emulator.supervisor import running
from hostile.base import Line

Outcome = Literal["survived", "lost", "crashed"]

_WORKERS = 2
_STARTS_SECONDS = 120.0
_ENDS_SECONDS = 120.0
"""In which a run ends that does not wait for hung workers, whose deadline is 900 s, also on a busy machine."""
_TIMES = ("seconds", "dollars", "digest")
"""What differs between runs of the same bits, and what is computed of these."""
_EXTRA = 2
"""Epochs that a resumed run trains."""
_SPARE = 4
"""Epochs of the run that nobody disturbs beyond those needed now: another trial may come further."""

# Read by every process of the trial, and obeyed by workers: at SIGUSR1 they spin, at SIGUSR2 they read from a pipe.
_HANGS = """\
import os, signal, sys

if "dorylax.serverless.backends.local.worker" in sys.orig_argv:
    def spin(*_):
        while True:
            pass

    signal.signal(signal.SIGUSR1, spin)
    signal.signal(signal.SIGUSR2, lambda *_: os.read(os.pipe()[0], 1))
"""

STOPPED = (signal.SIGSTOP, signal.SIGSTOP)
HUNG = ((signal.SIGSTOP, signal.SIGUSR1), (signal.SIGUSR2, signal.SIGUSR2))
"""What makes the two workers of a trial hang."""


class Way(NamedTuple):
    """What happens to the process that trains.

    Attributes:
        name: as the table says it.
        signals: that it gets, in order, a second apart.
        status: its exit status then.
        freed: whether the workers go on before it can end; only those that are stopped can.
        cleans: whether it can remove its temporary files: nothing that is killed can.
    """

    name: str
    signals: Sequence[signal.Signals]
    status: int
    freed: bool = False
    cleans: bool = True


WAYS = (
    Way("Ctrl-C twice", [signal.SIGINT] * 2, 130),
    Way("SIGTERM twice", [signal.SIGTERM] * 2, 143),
    Way("SIGHUP thrice, then SIGTERM", [signal.SIGHUP] * 3 + [signal.SIGTERM], 143),
    Way("Ctrl-C once; the workers go on", [signal.SIGINT], 130, freed=True),
    Way("SIGTERM once; the workers go on", [signal.SIGTERM], 143, freed=True),
    Way("SIGHUP thrice; the workers go on", [signal.SIGHUP] * 3, 143, freed=True),
    Way(
        "SIGTSTP, SIGCONT, SIGTERM; the workers go on",
        [signal.SIGTSTP, signal.SIGCONT, signal.SIGTERM],
        143,
        freed=True,
    ),
    Way("SIGKILL", [signal.SIGKILL], -signal.SIGKILL, cleans=False),
    Way("SIGQUIT", [signal.SIGQUIT], -signal.SIGQUIT, cleans=False),
    Way("SIGUSR1", [signal.SIGUSR1], -signal.SIGUSR1, cleans=False),
)
TERMINAL = "its terminal is closed; the workers go on"
PIPE = "its standard output and error are closed"


@final
@dataclasses.dataclass(frozen=True)
class Trial:
    """One run, in a folder of its own."""

    folder: Path

    @property
    def run(self) -> Path:
        """The directory of its seed."""
        return self.folder / "out" / "seed-0"

    def command(self, epochs: int, *words: str) -> list[str]:
        """`dorylax train`, whose checkpoints are of every second epoch."""
        settings = {
            "data.name": "communities",
            "data.size": "tiny",
            "pipeline.servers": 2,
            "pipeline.intervals": 2,
            "tensor.backend": "local",
            "tensor.workers": _WORKERS,
            "train.checkpoint_every": 2,
        }
        given = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        return [sys.executable, "-m", "dorylax", "train", *given, "--epochs", str(epochs), *words]

    def environment(self) -> dict[str, str]:
        """Of its processes."""
        for name in ("tmp", "site"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "site" / "sitecustomize.py").write_text(_HANGS)
        path = os.pathsep.join([str(self.folder / "site"), os.environ.get("PYTHONPATH", "")])
        return {
            "JAX_COMPILATION_CACHE_DIR": str(self.folder.parent / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            **os.environ,
            "TMPDIR": str(self.folder / "tmp"),
            "PYTHONPATH": path,
            "COLUMNS": "1000",
        }

    def epochs(self) -> list[dict[str, object]]:
        """What it has recorded, without times."""
        try:
            lines = (self.run / "metrics.jsonl").read_text().split("\n")[:-1]  # the last may just be written
        except FileNotFoundError:
            return []
        return [{key: value for key, value in json.loads(line).items() if key not in _TIMES} for line in lines]

    def saved(self) -> int:
        """Epochs of its newest checkpoint."""
        return max((int(path.name[6:]) for path in (self.run / "checkpoints").glob("epoch-*")), default=0)

    def temporary(self) -> list[str]:
        """Temporary files that are left."""
        return os.listdir(self.folder / "tmp")


def lines(folder: Path, *, tiny: bool) -> Iterator[Line]:
    """Tries the faults."""
    reference: list[dict[str, object]] = []
    for number, way in enumerate(WAYS[1:2] if tiny else WAYS):
        hangs = (STOPPED,) if way.freed or tiny else HUNG
        found = [_signalled(Trial(folder / f"{number}-{k}"), way, hang, reference) for k, hang in enumerate(hangs)]
        yield _line(f"{'stopped' if hangs == (STOPPED,) else 'hung'} workers: {way.name}", found)
    if not tiny:
        yield _line(f"stopped workers: {TERMINAL}", [_terminal_closed(Trial(folder / "terminal"), reference)])
        yield _line(f"working workers: {PIPE}", [_pipe_closed(Trial(folder / "pipe"), reference)])


def _line(fault: str, found: Sequence[Outcome]) -> Line:
    return Line(fault, len(found), *(found.count(one) for one in ("survived", "lost", "crashed")))


def _signalled(trial: Trial, way: Way, hang: Sequence[signal.Signals], reference: list[dict[str, object]]) -> Outcome:
    process = subprocess.Popen(
        trial.command(1_000_000, "--out", str(trial.folder / "out")),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=trial.environment(),
    )
    with _killed_at_last(process.pid):
        workers = _begun(trial, process.pid, lambda: process.poll() is not None)
        if workers is None:
            return _crashed(trial, "did not begin", process.stderr)
        for worker, number in zip(workers, hang, strict=True):
            os.kill(worker, number)
        time.sleep(0.5)
        for number in way.signals:
            time.sleep(1.0)
            if process.poll() is not None:
                return _crashed(trial, "ended before it was to", process.stderr)
            process.send_signal(number)
        if way.freed:
            for worker in workers:
                os.kill(worker, signal.SIGCONT)
        try:
            _, said = process.communicate(timeout=_ENDS_SECONDS)
        except subprocess.TimeoutExpired:
            return _crashed(trial, "did not end")
        if process.returncode != way.status or b"Traceback" in said:
            return _crashed(trial, f"ended with {process.returncode}, not {way.status}", said)
        if _left(workers):
            return _crashed(trial, "left workers")
        if way.cleans and (left := [*trial.temporary(), *trial.folder.glob("out/**/.lock")]):
            return _crashed(trial, f"left {left}")
        return _resumed(trial, reference, whole=way.freed)


def _terminal_closed(trial: Trial, reference: list[dict[str, object]]) -> Outcome:
    command, environment = trial.command(1_000_000, "--out", str(trial.folder / "out")), trial.environment()
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(command[0], command, environment)
    status: list[int] = []

    def ended() -> bool:
        if not status:
            found, code = os.waitpid(pid, os.WNOHANG)
            status.extend([os.waitstatus_to_exitcode(code)] if found else [])
        return bool(status)

    closing = threading.Event()

    def read() -> None:  # or it would wait for a reader
        try:
            while not closing.is_set():
                os.read(terminal, 1 << 16)
        except OSError:  # it is closed
            return

    threading.Thread(target=read, daemon=True).start()
    with _killed_at_last(pid):
        workers = _begun(trial, pid, ended)
        if workers is None:
            return _crashed(trial, "did not begin")
        for worker in workers:
            os.kill(worker, signal.SIGSTOP)
        time.sleep(0.5)
        closing.set()
        time.sleep(0.5)  # for the progress line, after which nothing is read any more
        os.close(terminal)
        time.sleep(1.0)
        for worker in workers:
            os.kill(worker, signal.SIGCONT)
        if not _until(ended, _ENDS_SECONDS) or status != [143] or _left(workers) or trial.temporary():
            return _crashed(trial, f"status {status}, {trial.temporary()} and perhaps workers are left")
        return _resumed(trial, reference, whole=True)


def _pipe_closed(trial: Trial, reference: list[dict[str, object]]) -> Outcome:
    """As `dorylax train 2>&1 | head -c 0`: the run goes on to its end, and only what it prints is gone."""
    reading, writing = os.pipe()
    words = ("--out", str(trial.folder / "out"))
    process = subprocess.Popen(trial.command(4, *words), stdout=writing, stderr=writing, env=trial.environment())
    os.close(writing)
    os.close(reading)
    with _killed_at_last(process.pid):
        try:
            process.wait(_STARTS_SECONDS)
        except subprocess.TimeoutExpired:
            return _crashed(trial, "did not end")
        if process.returncode not in (0, 1) or len(trial.epochs()) != 4 or trial.temporary():
            return _crashed(trial, f"ended with {process.returncode}; {trial.temporary()} is left")
        return _resumed(trial, reference, whole=True)


def _resumed(trial: Trial, reference: list[dict[str, object]], *, whole: bool) -> Outcome:
    """Goes on, and compares each epoch with those of a run that nobody has disturbed.

    Args:
        trial: the run.
        reference: epochs of that run; trained here as far as they are needed.
        whole: whether every epoch that was recorded has to be saved.
    """
    recorded, saved = trial.epochs(), trial.saved()
    if saved < (len(recorded) if whole else len(recorded) - 3):  # a checkpoint is two epochs old, at most
        return _failed(trial, "lost", f"{len(recorded)} epochs were recorded, {saved} saved")
    epochs = max(len(recorded), saved) + _EXTRA
    if len(reference) < epochs:
        other = Trial(trial.folder.parent / f"reference-{epochs}")
        command = other.command(epochs + _SPARE, "--out", str(other.folder / "out"))
        subprocess.run(command, check=True, capture_output=True, env=other.environment())
        reference[:] = other.epochs()
    command = trial.command(epochs, "--out", str(trial.folder / "out"), "--resume")
    done = subprocess.run(command, check=False, capture_output=True, env=trial.environment())
    if done.returncode != 0:
        return _crashed(trial, f"ended with {done.returncode} when it was gone on with", done.stderr)
    if trial.epochs() != reference[:epochs] or recorded != reference[: len(recorded)]:
        return _failed(trial, "lost", f"epochs are not those of {trial.folder.parent / 'reference'}*")
    return "survived"


def _crashed(trial: Trial, why: str, said: IO[bytes] | bytes | None = None) -> Outcome:
    return _failed(trial, "crashed", why, said)


def _failed(trial: Trial, outcome: Outcome, why: str, said: IO[bytes] | bytes | None = None) -> Outcome:
    """Says why, and what the process has said."""
    if said is not None and not isinstance(said, bytes):
        os.set_blocking(said.fileno(), False)  # it may run
        said = said.read()
    print(
        f"{trial.folder.name} {outcome}: {why}\n{(said or b'').decode(errors='replace')}", file=sys.stderr, flush=True
    )
    return outcome


class _killed_at_last:  # noqa: N801  (a context)
    """Kills a process and its workers at its end, if they are still there."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        for pid in (self._pid, *_below(self._pid)):
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except (ProcessLookupError, ChildProcessError):
                continue


def _begun(trial: Trial, pid: int, ended: Callable[[], bool]) -> list[int] | None:
    """Waits for some epochs; the workers, or None where it has ended before."""
    _until(lambda: len(trial.epochs()) > 3 or ended(), _STARTS_SECONDS)
    workers = _below(pid)
    return workers if len(workers) == _WORKERS and not ended() else None


def _below(pid: int) -> list[int]:
    return [one.pid for one in running() if one.parent == pid and not one.ended]


def _left(workers: Sequence[int]) -> bool:
    """Whether some are still there, soon after the end."""
    return not _until(lambda: not {one.pid for one in running() if not one.ended} & set(workers), 10.0)


def _until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found
