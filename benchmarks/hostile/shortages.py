"""Memory, threads, temporary folders and disks run short under commands.

Survived: one line says what is short, or the run goes on; where a disk has room again, it goes on to the same bits. Each
trial is a command that starts from nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from harness import within_limits
from harness.tried_runs import RUN, SAVED_PIPELINE, same_results
from harness.warm_process import Ended
from hostile.base import Line, Tally

_WORKERS = ("--set", "pipeline.servers=2", "--set", "tensor.backend=local", "--set", "tensor.workers=1")
_SECONDS = 120.0
_MIB = 2**20


def lines(folder: Path, *, tiny: bool) -> Iterator[Line]:
    """See `hostile.base`."""
    yield _address_space(folder, tiny=tiny)
    yield _threads(folder, tiny=tiny)
    if not tiny:  # each trial is a command
        yield _temporary_folders(folder)
        yield from _full_disks(folder)


def _address_space(folder: Path, *, tiny: bool) -> Line:
    """Limits the address space."""
    from dorylax.machine import address_space_needed

    needed = address_space_needed(0) // _MIB
    tally = Tally()
    for options in [()] if tiny else [(), ("--set", "pipeline.servers=2"), _WORKERS]:
        for size in [600] if tiny else [400, 1000, needed - 1, needed + 64]:
            _limited(tally, _free(folder), options, resource.RLIMIT_AS, size * _MIB)
    return tally.line("the address space limited (ulimit -v)")


def _threads(folder: Path, *, tiny: bool) -> Line:
    """Limits the threads of a user of whom nothing else runs."""
    from dorylax.pipeline.resources import most_threads

    needed = most_threads(None)
    tally = Tally()
    for options in [()] if tiny else [(), _WORKERS]:
        for count in [10] if tiny else [4, 16, needed - 1, needed + 2, 2 * needed]:
            _limited(tally, _free(folder), options, resource.RLIMIT_NPROC, count)
    return tally.line("threads limited (ulimit -u)")


def _limited(tally: Tally, out: Path, options: Sequence[str], number: int, limit: int) -> None:
    """A run within a limit: it is done, or refused before it has made anything."""
    ended = _started((*RUN, *options, "--out", str(out)), {number: limit})
    tally.judge(ended, f"{options} within {limit}", same=ended.code == 0 or not out.exists())


def _temporary_folders(folder: Path) -> Line:
    """Temporary folders in which no socket can be."""
    long, file = folder / ("x" * 110), folder / "a file"
    long.mkdir(exist_ok=True)
    file.touch()
    tally = Tally()
    for place in (long, folder / "none", file, Path("/proc/self"), Path("/dev/full")):
        ended = _started((*RUN, *_WORKERS, "--out", str(_free(folder))), TMPDIR=str(place))
        tally.judge(ended, str(place), same=ended.code == 0 and not list(long.iterdir()))
    return tally.line("a temporary folder too long, missing, a file, read-only")


def _full_disks(folder: Path) -> Iterator[Line]:
    """A disk that is full after so many KiB: a run ends in one line, and goes on where there is room again."""
    if not _can_mount(folder):
        print("  left out: full disks, which need leave to mount file systems")
        return
    tally = Tally()
    whole, arguments = _free(folder), (*RUN, *SAVED_PIPELINE)
    assert _started((*arguments, "--out", str(whole))).code == 0
    sizes = [4, 16, 64, 128, 192, 256, 320, 384]
    for size in sizes:
        with _disk(folder / "disk", size) as disk:
            run = disk / "run"
            ended = _started((*arguments, "--out", str(run)))
            there = (run / "seed-0" / "config.yaml").is_file()
            tally.judge(ended, f"{size} KiB")
            _mount("-o", f"remount,size={64 * 1024}k", str(disk))
            if not there:
                shutil.rmtree(run, ignore_errors=True)
            ended = _started((*arguments, "--out", str(run), *["--resume"] * there))
            tally.judge(ended, f"{size} KiB, then room", same=ended.code == 0 and same_results(run, whole))
            with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
                while filler.write(bytes(4096)):
                    pass
            for command in _others(disk) if size == sizes[-1] else ():
                ended = _started(command)
                tally.judge(ended, f"{command} on a full disk", same=ended.code == 1)
    yield tally.line("a full disk: train, resume, predict, partition, describe, report")


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


def _started(arguments: Sequence[str], limits: Mapping[int, int] | None = None, **environment: str) -> Ended:
    """Runs a command from nothing, within limits of its process."""
    # A process sets them and then becomes the command: this one has threads, and cannot be forked.
    words = [sys.executable, within_limits.__file__, json.dumps(list((limits or {}).items())), *arguments]
    try:
        done = subprocess.run(
            words,
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Ended(None, "", "it hung")
    return Ended(done.returncode, "", done.stderr.decode(errors="replace"))


def _free(folder: Path) -> Path:
    return next(path for number in range(10_000) if not (path := folder / f"run-{number}").exists())


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
