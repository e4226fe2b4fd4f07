"""A training process gets signals while its workers are stopped, spin or read from an empty pipe."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hostile.base import Line, Outcome, tried
from hostile.worker import until

# isort: split
from support.processes import alive, below, workers_of

_ENDS_SECONDS = 120.0
"""In which a run ends that does not wait for hung workers, whose deadline is 900 s, also on a busy machine."""
_TIMES = ("seconds", "dollars", "digest")
_EXTRA, _SPARE = 2, 4
"""Epochs that a resumed run trains, and epochs of the undisturbed run beyond those: another trial may come further."""
_SETTINGS = {"data.name": "communities", "data.size": "tiny", "pipeline.servers": 2, "pipeline.intervals": 2}
_SETTINGS |= {"tensor.backend": "local", "tensor.workers": 2, "tensor.fork": "false", "train.checkpoint_every": 2}

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
"""Signals that make the two workers of a trial hang."""


class Way(NamedTuple):
    """A disturbance of the process that trains.

    Attributes:
        name: For the table.
        signals: It gets them in order, a second apart.
        status: Its exit status then.
        freed: Whether the workers go on before it can end; only those that are stopped can.
        cleans: Whether it can remove its temporary files: nothing that is killed can.
    """

    name: str
    signals: Sequence[signal.Signals]
    status: int
    freed: bool = False
    cleans: bool = True


WAYS = (
    Way("SIGTERM twice", [signal.SIGTERM] * 2, 143),
    Way("Ctrl-C twice", [signal.SIGINT] * 2, 130),
    Way("SIGHUP thrice, then SIGTERM", [signal.SIGHUP] * 3 + [signal.SIGTERM], 143),
    Way("Ctrl-C once; the workers go on", [signal.SIGINT], 130, freed=True),
    Way("SIGTERM once; the workers go on", [signal.SIGTERM], 143, freed=True),
    Way("SIGHUP thrice; the workers go on", [signal.SIGHUP] * 3, 143, freed=True),
    *(Way(one.name, [one], -one, cleans=False) for one in (signal.SIGKILL, signal.SIGQUIT, signal.SIGUSR1)),
)


def lines(folder: Path, *, tiny: bool) -> Iterator[Line]:
    """See `base`."""
    reference: list[Any] = []
    for number, way in enumerate(WAYS[:1] if tiny else WAYS):
        hangs = (STOPPED,) if way.freed or tiny else HUNG

        def trial(k: int, number: int = number, way: Way = way, hangs: Any = hangs) -> tuple[Outcome, str]:
            return _Trial(folder / f"{number}-{k}", reference).tried(way, hangs[k], resume=not tiny)

        yield tried(f"{'stopped' if hangs == (STOPPED,) else 'hung'} workers: {way.name}", len(hangs), trial)


class _Trial:
    """One run, in a folder of its own, and the epochs of an undisturbed run."""

    def __init__(self, folder: Path, reference: list[Any]) -> None:
        self._folder, self._reference, self._run = folder, reference, folder / "out" / "seed-0"
        for name in ("tmp", "site"):
            (folder / name).mkdir(parents=True)
        (folder / "site" / "sitecustomize.py").write_text(_HANGS)
        path = os.pathsep.join([str(folder / "site"), os.environ.get("PYTHONPATH", "")])
        self._environment = {**os.environ, "TMPDIR": str(folder / "tmp"), "PYTHONPATH": path, "COLUMNS": "1000"}

    def tried(self, way: Way, hang: Sequence[signal.Signals], *, resume: bool) -> tuple[Outcome, str]:
        """Trains, disturbs it, and maybe resumes."""
        command, said = self._command(1_000_000), self._folder / "said"
        status: list[int] = []
        with said.open("wb") as file:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=file, env=self._environment)
            try:
                until(lambda: len(self._epochs()) > 3 or process.poll() is not None, _ENDS_SECONDS)
                workers = workers_of(process.pid)
                if len(workers) != 2:
                    return "crashed", f"did not begin: {said.read_text(errors='replace')}"
                for worker, number in zip(workers, hang, strict=True):
                    os.kill(worker, number)
                time.sleep(0.5)
                for number in way.signals:
                    time.sleep(1.0)
                    process.send_signal(number)
                if way.freed:
                    for worker in workers:
                        os.kill(worker, signal.SIGCONT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    status.append(process.wait(_ENDS_SECONDS))
                ended = until(lambda: not {one.pid for one in alive()} & set(workers), 10.0)
            finally:
                for pid in (*below(process.pid), process.pid):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                process.wait()
        printed = said.read_text(errors="replace")
        if status != [way.status] or "Traceback" in printed or not ended:
            return "crashed", f"status {status}, not {way.status}; workers {'ended' if ended else 'left'}; {printed}"
        if way.cleans and (left := [*(self._folder / "tmp").iterdir(), *self._folder.glob("out/**/.lock")]):
            return "crashed", f"left {left}"
        return self._resumed(whole=way.freed) if resume else ("survived", "")

    def _resumed(self, *, whole: bool) -> tuple[Outcome, str]:
        """Goes on, and compares each epoch with those of an undisturbed run; `whole`: every recorded one must be saved."""
        recorded = self._epochs()
        saved = max((int(path.name[6:]) for path in self._run.glob("checkpoints/epoch-*")), default=0)
        if saved < (len(recorded) if whole else len(recorded) - 3):  # a checkpoint is two epochs old, at most
            return "lost", f"{len(recorded)} epochs were recorded, {saved} saved"
        epochs = max(len(recorded), saved) + _EXTRA
        if len(self._reference) < epochs:
            other = _Trial(self._folder.parent / f"reference-{epochs}", [])
            command = other._command(epochs + _SPARE)
            subprocess.run(command, check=True, capture_output=True, env=other._environment)
            self._reference[:] = other._epochs()
        command = [*self._command(epochs), "--resume"]
        done = subprocess.run(command, check=False, capture_output=True, env=self._environment, text=True)
        if done.returncode != 0:
            return "crashed", f"ended with {done.returncode} when it was resumed: {done.stderr}"
        if self._epochs() != self._reference[:epochs] or recorded != self._reference[: len(recorded)]:
            return "lost", "its epochs are not those of the undisturbed run"
        return "survived", ""

    def _command(self, epochs: int) -> list[str]:
        words = [word for key, value in _SETTINGS.items() for word in ("--set", f"{key}={value}")]
        out = ["--epochs", str(epochs), "--out", str(self._folder / "out")]
        return [sys.executable, "-m", "dorylax", "train", *words, *out]

    def _epochs(self) -> list[dict[str, Any]]:
        """Recorded epochs, without times."""
        try:
            lines = (self._run / "metrics.jsonl").read_text().split("\n")[:-1]  # the last may just be written
        except FileNotFoundError:
            return []
        return [{key: value for key, value in json.loads(line).items() if key not in _TIMES} for line in lines]
