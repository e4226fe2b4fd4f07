"""Does a long run of many small tasks keep its memory, descriptors and threads? An hour of `dorylax train`, watched.

    python benchmarks/soak.py --minutes 60 --plot soak.png --json soak.json
    python benchmarks/soak.py --minutes 5 --warm-up 1 --set pipeline.mode=pipe --set tensor.transport=tcp

A GCN trains on a small graph, 8 servers × 64 intervals, on the real clock, with tasks in local workers and checkpoints
in a run directory. Every few seconds the benchmark samples the holdings of the trainer and of its workers, the temporary
folder, and the files in /dev/shm that these processes had open. "Own" is allocated memory: pages of no file. The table has
the means of the first tenth and of the last tenth of the time after the warm-up; "an hour" is the slope of the line through
all samples after it. In the end SIGTERM comes: the run has to end by itself, with its last epoch saved and nothing left.

The exit status is 1 if anything grew by more than 5 %, or the end was another one. Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from harness.command_line import parsed, parser_of, plotted, write_json

# isort: split
from support.processes import workers_of

MOST_GROWTH = 0.05
UNJUDGED = ("PSS, MiB", "run directory, MiB")
"""The one falls when other programs begin that map the same libraries, the other has a line for each epoch."""

_MIB = 2**20
_END_SECONDS = 120.0

Sample = Mapping[str, float]
"""Holdings at a time, by name; sizes in MiB."""


def held(pid: int) -> dict[str, float]:
    """The holdings of a process; empty where it has ended."""
    process = Path(f"/proc/{pid}")
    try:
        lines = (process / "smaps_rollup").read_text().splitlines() + (process / "status").read_text().splitlines()
        descriptors = len(list((process / "fd").iterdir()))
    except OSError:
        return {}
    words = [line.split() for line in lines]
    numbers = {line[0]: int(line[1]) for line in words if len(line) > 1 and line[1].isdecimal()}
    sizes = {name: numbers[f"{key}:"] / 1024 for name, key in (("RSS", "Rss"), ("PSS", "Pss"), ("own", "Anonymous"))}
    counts = {"descriptors": descriptors, "threads": numbers["Threads:"]}
    return {f"{name}, MiB": size for name, size in sizes.items()} | counts


def in_shared_memory(pid: int) -> set[Path]:
    """The files in /dev/shm that a process has open or maps."""
    found = set()
    for folder in (Path(f"/proc/{pid}/fd"), Path(f"/proc/{pid}/map_files")):
        with contextlib.suppress(OSError):  # it has ended
            for link in folder.iterdir():
                with contextlib.suppress(OSError):  # closed meanwhile
                    found.add(link.readlink())
    return {path for path in found if path.is_relative_to("/dev/shm") and not path.name.endswith(" (deleted)")}


def size_of(paths: Iterable[Path]) -> float:
    """Of files, in MiB; those that have just gone are left out."""
    total = 0
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            total += path.lstat().st_size if not path.is_dir() else 0
    return total / _MIB


def sample(trainer: int, temporary: Path, run: Path, shared: set[Path]) -> Sample:
    """The holdings now.

    Args:
        trainer: Id of the process that trains.
        temporary: Folder of its temporary files.
        run: Its run directory.
        shared: Files in /dev/shm that the processes held before; those that they hold now are added.
    """
    workers = workers_of(trainer)
    shared.update(*map(in_shared_memory, (trainer, *workers)))
    values: dict[str, float] = defaultdict(float, processes=1 + len(workers))
    for number, pid in enumerate((trainer, *workers)):
        for name, value in held(pid).items():
            for part in ["workers", f"worker {number}"] if number else ["trainer"]:
                values[f"{part}: {name}"] += value
    there = [path for path in shared if path.exists()]
    files = list(temporary.rglob("*"))
    values |= {"/dev/shm, MiB": size_of(there), "/dev/shm: entries": len(there)}
    values |= {"temporary files, MiB": size_of(files), "temporary files: entries": len(files)}
    return values | {"run directory, MiB": size_of(run.rglob("*"))}


def trends(hours: Sequence[float], samples: Sequence[Sample]) -> dict[str, tuple[float, float, float, bool]]:
    """By name, of all that is in every sample: means of the first and the last tenth, slope by hour, whether it grew."""
    tenth = -(-len(samples) // 10)
    found = {}
    for name in samples[0]:
        if all(name in one for one in samples):
            values = [one[name] for one in samples]
            first, last = statistics.fmean(values[:tenth]), statistics.fmean(values[-tenth:])
            slope = statistics.linear_regression(hours, values).slope
            grew = last - first > max(0.5, MOST_GROWTH * first) and not name.endswith(UNJUDGED)
            found[name] = (first, last, slope, grew)
    return found


def soak(options: argparse.Namespace, folder: Path) -> tuple[list[float], list[Sample], list[str]]:
    """Trains, and samples: hours after the start, holdings then, and errors of the end."""
    temporary, run = folder / "tmp", folder / "run"
    temporary.mkdir()
    settings = [f"pipeline.servers={options.servers}", f"pipeline.intervals={options.intervals}", "pipeline.mode=async"]
    settings += [
        "tensor.backend=local",
        "tensor.placement=functions",
        f"tensor.workers={options.workers}",
        "train.checkpoint_every=5",
    ]
    command = [sys.executable, "-m", "dorylax", "train", "--data=communities", "--epochs=100000", f"--out={run}"]
    command += [word for one in ["data.size=tiny", *settings, *options.settings] for word in ("--set", one)]
    metrics, said = run / "seed-0" / "metrics.jsonl", folder / "errors"
    hours: list[float] = []
    samples: list[Sample] = []
    shared: set[Path] = set()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with said.open("wb") as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, env=environment)
    try:
        while not _epochs(metrics) and process.poll() is None:  # until then it compiles
            time.sleep(0.1)
        begin = time.monotonic()
        while process.poll() is None and time.monotonic() < begin + 60 * options.minutes:
            hours.append((time.monotonic() - begin) / 3600)
            samples.append(sample(process.pid, temporary, run, shared))
            time.sleep(options.every)
        wrong = _ended(process, temporary, metrics)
        wrong += [f"shared memory is left: {path}" for path in shared if path.exists()]
    finally:
        process.kill()
        process.wait()
    if wrong:
        wrong += said.read_text(errors="replace").splitlines()[-1:]
    print(f"{_epochs(metrics)} epochs, {len(samples)} samples in {60 * hours[-1] if hours else 0:.1f} minutes")
    return hours, samples, wrong


def _epochs(metrics: Path) -> int:
    return metrics.read_bytes().count(b"\n") if metrics.is_file() else 0


def _ended(process: subprocess.Popen[bytes], temporary: Path, metrics: Path) -> list[str]:
    """Sends SIGTERM; errors of the end."""
    if process.poll() is not None:
        return [f"the run ended by itself, with exit status {process.returncode}"]
    workers = workers_of(process.pid)
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        return [f"SIGTERM had not ended the run after {_END_SECONDS:g} s"]
    epochs, run = _epochs(metrics), metrics.parent
    summary = json.loads((run / "summary.json").read_text())
    found = {
        f"exit status {process.returncode}": process.returncode != 128 + signal.SIGTERM,
        f"summary: {summary['stopped']} after {summary['epochs']} epochs, of {epochs}": summary["stopped"] != "signal"
        or summary["epochs"] != epochs,
        f"epoch {epochs} was not saved": not (run / "checkpoints" / f"epoch-{epochs:08d}" / "manifest.json").is_file(),
        f"workers are left: {workers}": any(map(held, workers)),
        "temporary files are left": any(temporary.iterdir()),
    }
    return [what for what, wrong in found.items() if wrong]


def draw(path: Path, hours: Sequence[float], samples: Sequence[Sample], warm_up: float) -> None:
    """Allocated memory above; descriptors and threads below."""
    minutes = [60 * hour for hour in hours]
    with plotted(path, 2, size=(7.0, 6.0), sharex=True) as panels:
        for axes, endings in zip(panels, (("own, MiB",), ("descriptors", "threads")), strict=True):
            for name in (one for one in samples[0] if one.startswith(("trainer", "workers")) and one.endswith(endings)):
                axes.plot(minutes, [one.get(name) for one in samples], label=name.removesuffix(", MiB"))
            axes.axvline(60 * warm_up, color="0.6", linestyle=":")
            axes.set(ylim=(0, None), ylabel="allocated, MiB" if len(endings) == 1 else "number")
            axes.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
            axes.grid(alpha=0.3)
        axes.set_xlabel("minutes since the first epoch")


def main() -> None:
    """Soaks."""
    parser = parser_of(__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--warm-up", type=float, help="minutes that are not judged (default: a twelfth of them)")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between samples")
    parser.add_argument("--servers", type=int, default=8)
    parser.add_argument("--intervals", type=int, default=64, help="of each server")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--set", dest="settings", metavar="KEY=VALUE", action="append", default=[], help="repeatable")
    parser.add_argument("--plot", type=Path, help="draw the figure here")
    parser.add_argument("--json", type=Path, help="also write all samples to this file")
    tiny = {"minutes": 0.02, "warm_up": 0.0, "every": 0.3, "servers": 2, "intervals": 2, "workers": 1}
    options = parsed(parser, **tiny)
    warm_up = (options.minutes / 12 if options.warm_up is None else options.warm_up) / 60
    with tempfile.TemporaryDirectory(prefix="dx-") as folder:  # short: paths of sockets are limited
        hours, samples, wrong = soak(options, Path(folder))
    judged = [(hour, one) for hour, one in zip(hours, samples, strict=True) if hour >= warm_up]
    if len(judged) < 2:
        sys.exit("; ".join(wrong) or "there are fewer than two samples after the warm-up: give more --minutes")
    found = trends(*zip(*judged, strict=True))
    print(f"{'':<28} {'first tenth':>12} {'last tenth':>12} {'growth':>8} {'an hour':>10}")
    for name, (first, last, slope, grew) in found.items():
        growth = f"{100 * (last / first - 1):+.1f} %" if first else "–"
        print(f"{name:<28} {first:>12.1f} {last:>12.1f} {growth:>8} {slope:>+10.1f}{'  grew' if grew else ''}")
        if grew and not options.tiny:  # which measures nothing
            wrong.append(f"{name} grew")
    write_json(options.json, {"hours": hours, "samples": samples, "wrong": wrong})
    if options.plot is not None:
        draw(options.plot, hours, samples, warm_up)
    print("the end: " + ("; ".join(wrong) or "clean"))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
