"""Whole commands that begin together, are stopped or are killed want one run directory, sweep or temporary folder."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, final

from harness.contenders import SECONDS, Outcome, outcomes, stopped, until
from harness.processes import below
from harness.small_commands import SWEEP, TRAIN, hidden, run_result, sweep_result
from hostile.base import Line

_EPOCHS = 20
_COSTS = {"dollars", "bill", "clock", "counters", "controllers", "report"}
_SANDBOXES = ("pipeline.servers=2", "pipeline.intervals=2", "tensor.backend=local", "tensor.workers=2")
_LONG_SWEEP = SWEEP.replace("train.epochs: 2", "train.epochs: 15").replace("seeds: [0]", "seeds: [0, 1]")


def lines(folder: Path, *, tiny: bool) -> Iterator[Line]:
    """See `base`."""
    here = _Commands(folder)
    few = 1 if tiny else 3
    yield Line("a run directory: trained in together", **outcomes(few, here.trained_together))
    if tiny:
        return
    yield Line("a run directory: who trains there is stopped, then goes on", **outcomes(few, here.trainer_stopped))
    yield Line("a run directory: who trains there is killed, another goes on", **outcomes(few, here.trainer_killed))
    yield Line("a sweep's folder: run in together, with two jobs each", **outcomes(few, here.sweeps_together))
    yield Line("a sweep's folder: who runs it is stopped, then goes on", **outcomes(few, here.sweep_stopped))
    yield Line("a sweep's folder: who runs it is killed, another goes on", **outcomes(few, here.sweep_killed))
    yield Line("a sweep's jobs: one is killed, and the sweep is run again", **outcomes(few, here.job_killed))
    yield Line("runs with sandboxes in one temporary folder", **outcomes(few, here.sandboxes_together))
    yield Line("runs with sandboxes in one temporary folder: one is killed", **outcomes(few, here.sandboxes_killed))


@final
@dataclasses.dataclass
class _Ended:
    """How a command ended, and what it has printed to standard error."""

    code: int
    errors: str

    @property
    def refused(self) -> bool:
        """Whether it was, in one line that names who has what it wants."""
        return self.code == 2 and self.errors.count("\n") == 1 and "process " in self.errors


@final
class _Command:
    """A command that runs, killed at the end with all below it if it is still there."""

    def __init__(self, words: Sequence[str | Path], folder: Path, environment: Mapping[str, str]) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed at the end)
        self.process = subprocess.Popen(
            [sys.executable, "-m", *map(str, words)],
            cwd=folder,
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
        )

    def __enter__(self) -> _Command:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in (*below(self.process.pid), self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self._errors.close()

    def ended(self) -> _Ended | None:
        """Waits for its end; None if it does not come."""
        try:
            code = self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            return None
        self._errors.seek(0)
        return _Ended(code, self._errors.read())

    def kill(self) -> list[int]:
        """Kills it alone, and returns the processes that it had below it."""
        found = below(self.process.pid)
        self.process.kill()
        self.process.wait()
        return found


@final
class _Commands:
    """The trials.

    Args:
        folder: for their files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = {  # one for all of them
            "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            "COLUMNS": "1000",
        }
        (folder / "two.yaml").write_text(_LONG_SWEEP)
        self._right: dict[str, Any] = {}
        self._count = 0

    # What runs.

    def _free(self) -> Path:
        self._count += 1
        found = self._folder / f"work-{self._count}"
        found.mkdir()
        return found

    def _train(self, folder: Path, *words: str, environment: Mapping[str, str] | None = None) -> _Command:
        command = ("dorylax", *TRAIN[1:], "--model", "gcn", "--epochs", str(_EPOCHS), "--out", "run", *words)
        return _Command(command, folder, {**self._environment, **(environment or {})})

    def _sandboxed(self, folder: Path, temporary: str) -> _Command:
        settings = [word for setting in _SANDBOXES for word in ("--set", setting)]
        return self._train(folder, "--epochs", "4", *settings, environment={"TMPDIR": temporary})

    def _sweep(self, folder: Path) -> _Command:
        words = ("dorylax.experiments.run", "--sweep", self._folder / "two.yaml", "--out", "sweep", "--jobs", "2")
        return _Command((*words, "--tensorboard"), folder, self._environment)

    # What comes of it.

    def _found(self, kind: str, folder: Path) -> Any:
        if kind == "sweep":
            with contextlib.suppress(OSError):  # empty, once a run that failed is done
                (folder / "sweep" / "errors").rmdir()
            return sweep_result(folder)
        return _without_costs(run_result(folder / "run" / "seed-0"))

    def _is_right(self, kind: str, folder: Path) -> Outcome:
        """Whether what is there is what one command alone makes, and nothing else."""
        if kind not in self._right:
            alone = self._free()
            start = {"run": self._train, "sweep": self._sweep}.get(kind)
            with (
                tempfile.TemporaryDirectory(prefix="dx-") as temporary,
                start(alone) if start else self._sandboxed(alone, temporary) as command,
            ):
                if (ended := command.ended()) is None or ended.code != 0:
                    raise RuntimeError(f"{kind} does not even run undisturbed: {ended}")
            self._right[kind] = self._found(kind, alone)
        if hidden(folder):
            return "crashed"
        try:
            found = self._found(kind, folder)
        except Exception as error:
            print(f"    {kind}: {type(error).__name__}: {error}", flush=True)
            return "lost"
        return "survived" if found == self._right[kind] else "lost"

    def _together(self, kind: str, folder: Path, *commands: _Command) -> Outcome:
        """One does it, and the others are refused, or find it done."""
        ended = [one.ended() for one in commands]
        if any(one is None or not (one.code == 0 or one.refused) for one in ended):
            return _crashed(ended)
        return self._is_right(kind, folder) if any(one and one.code == 0 for one in ended) else "lost"

    def _goes_on(self, kind: str, folder: Path, command: _Command) -> Outcome:
        with command:
            ended = command.ended()
            return self._is_right(kind, folder) if ended and ended.code == 0 else _crashed([ended])

    # Trials.

    def trained_together(self, _: int) -> Outcome:
        """`dorylax train` twice, where nothing is yet: who comes later is refused for what is there then."""
        folder = self._free()
        with self._train(folder) as first, self._train(folder) as second:
            ended = [first.ended(), second.ended()]
            codes = sorted(one.code for one in ended if one)
            if codes != [0, 2] or any(one and one.code == 2 and one.errors.count("\n") != 1 for one in ended):
                return "lost" if codes == [0, 0] else _crashed(ended)
            return self._is_right("run", folder)

    def trainer_stopped(self, _: int) -> Outcome:
        """Nobody takes a stopped process for a dead one."""
        folder = self._free()
        with self._train(folder) as first:
            if not until((folder / "run" / "seed-0" / "metrics.jsonl").exists):
                return "crashed"
            with stopped(first.process.pid), self._train(folder, "--resume") as second:
                ended = second.ended()
            if ended is None or not ended.refused or f"process {first.process.pid}" not in ended.errors:
                return "lost" if ended and ended.code == 0 else _crashed([ended])
            return self._together("run", folder, first)

    def trainer_killed(self, _: int) -> Outcome:
        """What a killed process has left keeps nobody out."""
        folder = self._free()
        with self._train(folder) as first:
            if not until((folder / "run" / "seed-0" / "metrics.jsonl").exists):
                return "crashed"
            first.kill()
        return self._goes_on("run", folder, self._train(folder, "--resume"))

    def sweeps_together(self, _: int) -> Outcome:
        """One sweep, given twice."""
        folder = self._free()
        with self._sweep(folder) as first, self._sweep(folder) as second:
            return self._together("sweep", folder, first, second)

    def sweep_stopped(self, _: int) -> Outcome:
        """The process is stopped that has the folder, while its jobs go on."""
        folder = self._free()
        with self._sweep(folder) as first:
            if not self._begun(folder):
                return "crashed"
            with stopped(first.process.pid), self._sweep(folder) as second:
                ended = second.ended()
            if ended is None or not ended.refused or f"process {first.process.pid}" not in ended.errors:
                return "lost" if ended and ended.code == 0 else _crashed([ended])
            return self._together("sweep", folder, first)

    def sweep_killed(self, _: int) -> Outcome:
        """Its jobs end with it, so that another one goes on with the runs that they had."""
        folder = self._free()
        with self._sweep(folder) as first:
            if not self._begun(folder):
                return "crashed"
            jobs = first.kill()
            outcome = self._goes_on("sweep", folder, self._sweep(folder))
            return outcome if outcome != "survived" or not any(map(_is_there, jobs)) else "crashed"

    def job_killed(self, _: int) -> Outcome:
        """A run has failed, the others are done; the same command tries it again."""
        folder = self._free()
        with self._sweep(folder) as first:
            if not self._begun(folder):
                return "crashed"
            jobs = [pid for pid in below(first.process.pid) if _is_job(pid)]
            os.kill(jobs[0], signal.SIGKILL)
            ended = first.ended()
            if (
                ended is None
                or ended.code != 1
                or "Traceback" in ended.errors
                or "1 of 4 runs failed" not in ended.errors
            ):
                return _crashed([ended])
        return self._goes_on("sweep", folder, self._sweep(folder))

    def sandboxes_together(self, _: int) -> Outcome:
        """Two runs, each with workers of its own, leave nothing in the folder that they share."""
        folders = [self._free(), self._free()]
        with tempfile.TemporaryDirectory(prefix="dx-") as temporary:
            with self._sandboxed(folders[0], temporary) as first, self._sandboxed(folders[1], temporary) as second:
                ended = [first.ended(), second.ended()]
            if any(one is None or one.code != 0 for one in ended) or list(Path(temporary).iterdir()):
                return _crashed(ended)
        found = {self._is_right("sandboxed run", folder) for folder in folders}
        return next((one for one in ("crashed", "lost") if one in found), "survived")

    def sandboxes_killed(self, _: int) -> Outcome:
        """One of them is killed: its workers go, and the other one does not notice."""
        one, other = self._free(), self._free()
        with tempfile.TemporaryDirectory(prefix="dx-") as temporary:
            with self._sandboxed(one, temporary) as first, self._sandboxed(other, temporary) as second:
                if not until((one / "run" / "seed-0" / "metrics.jsonl").exists):
                    return "crashed"
                workers = first.kill()
                ended = second.ended()
            left = list(Path(temporary).iterdir())
            if ended is None or ended.code != 0 or len(left) > 1:  # nothing that is killed can clean up
                return _crashed([ended])
            if not until(lambda: not any(map(_is_there, workers))):
                return "crashed"
        return self._is_right("sandboxed run", other)

    def _begun(self, folder: Path) -> bool:
        return until(lambda: any((folder / "sweep").glob("runs/*/metrics.jsonl")))


def _without_costs(fields: Any) -> Any:
    """Plain values without those that follow from times on the real clock, and counters of messages and repetitions."""
    if isinstance(fields, dict):
        return {key: _without_costs(value) for key, value in fields.items() if key not in _COSTS}
    return [_without_costs(one) for one in fields] if isinstance(fields, list) else fields


def _is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _is_job(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def _crashed(ended: Sequence[_Ended | None]) -> Outcome:
    """Tells how."""
    print(f"    {[one and (one.code, one.errors[-500:]) for one in ended]}", flush=True)
    return "crashed"
