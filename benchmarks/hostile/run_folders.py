"""Files of runs are damaged, removed, or not written to their end; memory, threads, temporary folders and disks run short.

Survived: one line says what is wrong, or the run goes on; and it resumes to the same bits. Each trial is a command in a
process of its own, which a server forks that has imported everything; those under limits start from nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, final

if __name__ != "__main__":
    from hostile.base import Line

_RUN = ("train", "--data", "communities", "--set", "data.size=tiny", "--epochs", "4")
_PIPELINE = ("--set", "pipeline.servers=2", "--set", "pipeline.clock=virtual")
_SAVES = ("--set", "train.checkpoint_every=2")
_WORKERS = ("--set", "pipeline.servers=2", "--set", "tensor.backend=local", "--set", "tensor.workers=1")
_SECONDS = 120.0
_MIB = 2**20
_KILLED = -signal.SIGKILL


class Ended(NamedTuple):
    """How a command ended: its exit code, and what it wrote to the standard error."""

    code: int
    said: str

    @property
    def in_one_line(self) -> bool:
        """Whether it did what it should, or refused or ended with one line, besides warnings, and no library's words."""
        lines = [line for line in self.said.splitlines() if not line.startswith("warning: ")]
        return self.code == 0 or (self.code in (1, 2) and len(lines) == 1 and lines[0].startswith("error: "))


def lines(folder: Path, *, tiny: bool) -> Iterator[Line]:
    """See `hostile.base`."""
    with _Server(folder) as server:
        whole = folder / "whole"
        options = (*_RUN, *_SAVES, *_PIPELINE)
        first = server.run((*options, "--out", str(whole)))
        if first.code != 0:
            raise RuntimeError(f"the run that is to be damaged has failed: {first.said}")
        yield _flipped_files(whole, bits=100 if tiny else 2_500)
        yield _flipped_checkpoints(whole, bits=20 if tiny else 500)
        yield _resumed(server, whole, options, tiny=tiny)
        yield _killed(server, whole, options, tiny=tiny)
    yield _address_space(folder, tiny=tiny)
    yield _threads(folder, tiny=tiny)
    if not tiny:  # each trial is a command
        yield _temporary_folders(folder)
        yield _full_disks(folder)


# Damage.


def _flipped_files(whole: Path, *, bits: int) -> Line:
    """Reads each file of values with a bit flipped."""
    from dorylax.experiments.folder import read_study
    from dorylax.runs import metrics
    from dorylax.runs.directory import DamagedFileError, RunDirectory
    from dorylax.settings.errors import ConfigError

    run = RunDirectory.open(whole / "seed-0")
    readers: dict[Path, Callable[[], Any]] = {
        run.config_path: lambda: run.config,
        run.environment_path: lambda: run.environment,
        run.summary_path: lambda: run.summary,
        run.metrics_path: lambda: metrics.of_run(run),
        whole / "sweep.json": lambda: read_study(whole).sweep,
    }
    tally = _Tally()
    for path, read in readers.items():
        value = read()
        for _ in _flips(path, bits // len(readers), seed=len(path.name)):
            try:
                # A flipped name of the digest is one field more, which readers do not know.
                found = read()
                same = {key: found[key] for key in value} == value if isinstance(value, dict) else found == value
                tally.add(survived=same)
            except (DamagedFileError, ConfigError) as error:
                tally.add(survived="is damaged" in str(error) or "is not as it was written" in str(error))
            except Exception:
                tally.crashed += 1
    return tally.line("a bit flipped in config, environment, metrics, summary, sweep.json")


def _flipped_checkpoints(whole: Path, *, bits: int) -> Line:
    """Restores with a bit flipped in the newest checkpoint, in the names of its files too."""
    import numpy as np

    from dorylax.runs.checkpoint import Checkpoints, CheckpointWarning

    store = Checkpoints(whole / "seed-0" / "checkpoints")
    older, newer = store.epochs()
    restored = store.restore()
    assert restored is not None

    def judged() -> bool:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            found = Checkpoints(whole / "seed-0" / "checkpoints").restore()
        if found is None:
            return False
        if found.epochs == older:
            return [one.category for one in seen] == [CheckpointWarning] or not store.path(newer).exists()
        same = found.record == restored.record and found.arrays.keys() == restored.arrays.keys()
        return same and all(
            np.array_equal(array, restored.arrays[group][name], equal_nan=True)
            for group, named in found.arrays.items()
            for name, array in named.items()
        )

    files = [path for path in sorted(store.path(newer).rglob("*")) if path.is_file()]
    # As many in each file: those that say what the others are matter most, and are small.
    faults = [_flips(path, -(-bits // len(files)), seed=number) for number, path in enumerate(files)]
    faults += [_renamed(path) for path in [*files, store.path(newer)]]
    tally = _Tally()
    for fault in faults:
        for _ in fault:
            try:
                tally.add(survived=judged())
            except Exception:
                tally.crashed += 1
    return tally.line("a bit flipped in a checkpoint's files and their names")


def _flips(path: Path, count: int, *, seed: int) -> Iterator[None]:
    """Flips one bit after the other, and puts the file right at the end."""
    content = path.read_bytes()
    every = range(8 * len(content))
    for bit in random.Random(seed).sample(every, min(count, len(every))):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        yield
    path.write_bytes(content)


def _renamed(path: Path) -> Iterator[None]:
    """Flips the lowest bit of the last letter of a name."""
    other = path.with_name(path.name[:-1] + chr(ord(path.name[-1]) ^ 1))
    path.rename(other)
    yield
    other.rename(path)


def _resumed(server: _Server, whole: Path, options: Sequence[str], *, tiny: bool) -> Line:
    """Damages or removes each file, and gives the command with --resume: refused in one line, or the same bits."""
    tally = _Tally()
    names = ["seed-0/summary.json", "seed-0/config.yaml"] if tiny else _files(whole)
    for name in names:
        for harm in (_flip_middle,) if tiny else (_flip_middle, Path.unlink):
            copy = _copied(whole)
            harm(copy / name)
            ended = server.run((*options, "--out", str(copy), "--resume"))
            tally.judge(ended, same=ended.code != 0 or _same_results(copy, whole))
    return tally.line("a file of a run flipped or removed, then resumed")


def _killed(server: _Server, whole: Path, options: Sequence[str], *, tiny: bool) -> Line:
    """Kills a run before each of its renames, and resumes it to the same files."""
    tally = _Tally()
    for number in [8] if tiny else range(1, 100):
        copy = whole.with_name("killed")
        shutil.rmtree(copy, ignore_errors=True)
        ended = server.run((*options, "--out", str(copy)), kill=number)
        if ended.code == 0:  # it has fewer renames
            break
        # Nothing to continue: the same command starts again.
        resume = ["--resume"] if any(copy.glob("seed-*")) else []
        ended = server.run((*options, "--out", str(copy), *resume))
        tally.judge(ended, same=ended.code == 0 and _same_results(copy, whole) and _files(copy) == _files(whole))
    return tally.line("a run killed before each rename, then resumed")


# What runs short.


def _address_space(folder: Path, *, tiny: bool) -> Line:
    """Limits the address space."""
    from dorylax.machine import address_space_needed

    needed = address_space_needed(0) // _MIB
    sizes = [600] if tiny else [400, 1000, needed - 1, needed + 64]
    tally = _Tally()
    for options in [()] if tiny else [(), ("--set", "pipeline.servers=2"), _WORKERS]:
        for size in sizes:
            limits = {resource.RLIMIT_AS: size * _MIB}
            tally.judge(_started((*_RUN, *options, "--out", str(_free(folder))), limits))
    return tally.line("the address space limited (ulimit -v)")


def _threads(folder: Path, *, tiny: bool) -> Line:
    """Limits the threads of a user of whom nothing else runs."""
    from dorylax.pipeline.resources import most_threads

    needed = most_threads(None)
    counts = [10] if tiny else [4, 16, needed - 1, needed + 2, 2 * needed]
    tally = _Tally()
    for options in [()] if tiny else [(), _WORKERS]:
        for count in counts:
            limits = {resource.RLIMIT_NPROC: count}
            tally.judge(_started((*_RUN, *options, "--out", str(_free(folder))), limits))
    return tally.line("threads limited (ulimit -u)")


def _temporary_folders(folder: Path) -> Line:
    """Temporary folders in which no socket can be."""
    long, file = folder / ("x" * 110), folder / "a file"
    long.mkdir(exist_ok=True)
    file.touch()
    tally = _Tally()
    for place in (long, folder / "none", file, Path("/proc/self"), Path("/dev/full")):
        ended = _started((*_RUN, *_WORKERS, "--out", str(_free(folder))), TMPDIR=str(place))
        tally.judge(ended, same=ended.code == 0 and not list(long.iterdir()))
    return tally.line("a temporary folder too long, missing, a file, read-only")


def _full_disks(folder: Path) -> Line:
    """A disk that is full after so many KiB: a run ends in one line, and goes on where there is room again."""
    tally = _Tally()
    whole = _free(folder)
    arguments = (*_RUN, *_SAVES, *_PIPELINE)
    sizes = [4, 16, 32, 64, 96, 128, 192] if _can_mount(folder) else []
    if sizes:
        assert _started((*arguments, "--out", str(whole))).code == 0
    for size in sizes:
        with _disk(folder / "disk", size) as disk:
            ended = _started((*arguments, "--out", str(disk / "run")))
            there = (disk / "run" / "seed-0" / "config.yaml").is_file()
            tally.judge(ended)
            _mount("-o", f"remount,size={64 * 1024}k", str(disk))
            if not there:
                shutil.rmtree(disk / "run", ignore_errors=True)
            ended = _started((*arguments, "--out", str(disk / "run"), *["--resume"] * there))
            tally.judge(ended, same=ended.code == 0 and _same_results(disk / "run", whole))
            with contextlib.suppress(OSError), (disk / "filler").open("wb") as filler:
                while filler.write(bytes(4096)):
                    filler.flush()
            for command in _others(disk) if size == sizes[-1] else ():
                ended = _started(command)
                tally.judge(ended, same=ended.code == 1)
    return tally.line("a full disk: train, resume, predict, partition, describe, report")


def _others(disk: Path) -> list[tuple[str, ...]]:
    data = ("--data", "communities", "--set", "data.size=tiny")
    run = str(disk / "run")
    return [
        ("predict", "--run", run, "--out", str(disk / "p.csv")),
        ("predict", "--run", run, "--out", str(disk / "p.npz")),
        ("partition", *data, "--servers", "2", "--out", str(disk / "parts")),
        ("describe", *data, "--svg", str(disk / "d.svg")),
        ("report", run),
    ]


# Trials.


@final
class _Tally:
    """What became of the trials of one line."""

    def __init__(self) -> None:
        self.survived = self.lost = self.crashed = 0

    def add(self, *, survived: bool) -> None:
        self.survived += survived
        self.lost += not survived

    def judge(self, ended: Ended, *, same: bool = True) -> None:
        """Of a command; `same`: whether it left what it should."""
        if not ended.in_one_line:
            self.crashed += 1
            print(f"    crashed ({ended.code}): {ended.said[-300:]!r}", file=sys.stderr)
            return
        if not same:
            print(f"    lost ({ended.code}): {ended.said[-300:]!r}", file=sys.stderr)
        self.add(survived=same)

    def line(self, fault: str) -> Line:
        tried = self.survived + self.lost + self.crashed
        return Line(fault, tried, self.survived, self.lost, self.crashed)


def _started(arguments: Sequence[str], limits: Mapping[int, int] | None = None, **environment: str) -> Ended:
    """Runs a command from nothing, within limits of the process."""
    try:
        done = subprocess.run(
            # They are set by a process that then becomes the command: this one has threads, and cannot be forked.
            [sys.executable, __file__, json.dumps(list((limits or {}).items())), *arguments],
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Ended(_KILLED, "it hung")
    return Ended(done.returncode, done.stderr.decode(errors="replace"))


def _become(limits: str, *arguments: str) -> None:
    """Becomes a command within limits of the process."""
    for number, limit in json.loads(limits):
        if number == resource.RLIMIT_NPROC and os.getuid() == 0:
            _be_bound_by_limits()
        resource.setrlimit(number, (limit, limit))
    os.execv(sys.executable, [sys.executable, "-m", "dorylax", *arguments])


def _be_bound_by_limits() -> None:
    """Makes root a user whom the limit of processes binds, but who may still read all files."""
    drop_from_bounding_set, sys_admin, sys_resource, nobody_elses = 24, 21, 24, 54321
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (sys_admin, sys_resource):
        libc.prctl(drop_from_bounding_set, capability, 0, 0, 0)
    os.setresuid(nobody_elses, 0, 0)


@final
class _Server:
    """A process that has imported everything, and forks itself for each command."""

    def __init__(self, folder: Path) -> None:
        self._said = folder / "said"
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> _Server:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def run(self, arguments: Sequence[str], kill: int | None = None) -> Ended:
        """Runs a command; `kill`: before which rename it is killed, counted from 1."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([list(arguments), kill, str(self._said)]) + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        return Ended(code, self._said.read_text("utf-8", errors="replace"))


def _serve() -> None:
    import dorylax.cli.seeds
    import dorylax.pipeline.engine
    import dorylax.pipeline.saved
    import dorylax.trainer  # noqa: F401
    from dorylax.cli import main

    for request in sys.stdin:
        arguments, kill, said = json.loads(request)
        child = os.fork()
        if child == 0:
            error = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(error, 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            signal.alarm(round(_SECONDS))
            if kill is not None:
                _kill_before(kill)
            try:
                code = main(arguments)
            except BaseException:
                sys.excepthook(*sys.exc_info())
                code = 70
            sys.stderr.flush()
            os._exit(code)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _kill_before(number: int) -> None:
    rename, seen = os.replace, 0

    def replace(*arguments: Any, **options: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == number:
            os.kill(os.getpid(), signal.SIGKILL)
        rename(*arguments, **options)

    os.replace = replace


# Folders.


def _free(folder: Path) -> Path:
    return next(path for number in range(10_000) if not (path := folder / f"run-{number}").exists())


def _copied(whole: Path) -> Path:
    copy = whole.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(whole, copy)
    return copy


def _flip_middle(path: Path) -> None:
    content = bytearray(path.read_bytes())
    if content:
        content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _files(whole: Path) -> list[str]:
    """But locks, the insides of arrays, whose names are random, and traces, which are of the process that trained."""
    left_out = (".lock", "trace.json")
    names = [str(path.relative_to(whole)) for path in whole.rglob("*") if path.is_file() and path.name not in left_out]
    return sorted(name for name in names if "/arrays/" not in name)


def _same_results(one: Path, other: Path) -> bool:
    """Whether tables, metrics, and all of a summary but wall times are the same, and those of no bit is damaged."""
    from dorylax.runs import metrics
    from dorylax.runs.directory import RunDirectory

    runs = [RunDirectory(folder / "seed-0") for folder in (one, other)]
    summaries = [{**(run.summary or {}), "timings": None} for run in runs]
    tables = [(folder / "results.csv").read_bytes() for folder in (one, other)]
    return (
        summaries[0] == summaries[1]
        and tables[0] == tables[1]
        and runs[0].config == runs[1].config
        and metrics.of_run(runs[0]) == metrics.of_run(runs[1])
    )


def _can_mount(folder: Path) -> bool:
    try:
        with _disk(folder / "disk", 4):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


@contextlib.contextmanager
def _disk(path: Path, kibibytes: int) -> Iterator[Path]:
    """A file system of that size, in memory."""
    path.mkdir(exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"size={kibibytes}k", "tmpfs", str(path))
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


def _mount(*options: str) -> None:
    subprocess.run(["mount", *options], check=True, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    if sys.argv[1:]:
        _become(*sys.argv[1:])
    else:
        _serve()
