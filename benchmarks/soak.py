"""Does a long run of many small tasks keep its memory, descriptors and threads? An hour of `dorylax train`, watched.

    python benchmarks/soak.py --minutes 60 --plot soak.png --json soak.json
    python benchmarks/soak.py --minutes 5 --warm-up 1 --mode pipe --set tensor.transport=tcp

A GCN trains on a small graph, 8 servers × 64 intervals, on the real clock, with tasks in local workers and checkpoints
in a run directory. Every few seconds it is noted what the process that trains and its workers hold, what lies in the
folder of temporary files, and of the files in /dev/shm those that these processes had open. "Own" is the memory that they
have allocated: pages of no file. The table has the means of the first tenth and of the last tenth of the time after the
warm-up; "an hour" is the slope of the line through all samples after it. In the end SIGTERM comes: the run has to end by
itself, with its last epoch saved and nothing left behind.

The exit status is 1 if anything grew by more than 5 %, or the end was another one. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from harness.command_line import parsed, parser_of, write_json
from harness.processes import below, held, in_shared_memory

MOST_GROWTH = 0.05
_TENTH = 10
_DRAWN = ("trainer", "workers")
_MIB = 2**20
_END_SECONDS = 120.0

Sample = Mapping[str, float]
"""What was held at a time, by name; sizes in MiB."""


class Trend(NamedTuple):
    """What has become of one thing.

    Attributes:
        first: its mean in the first tenth after the warm-up.
        last: in the last tenth.
        slope: of the line through all, by the hour.
        grew: whether it is judged, and last is more than `MOST_GROWTH` above first, and by more than a half (MiB, piece).
    """

    first: float
    last: float
    slope: float
    grew: bool


def trends(hours: Sequence[float], samples: Sequence[Sample]) -> dict[str, Trend]:
    """Of everything that all samples have.

    Args:
        hours: when they were taken.
        samples: after the warm-up, two at least.
    """
    tenth = -(-len(samples) // _TENTH)
    found = {}
    for name in samples[0]:
        if all(name in sample for sample in samples):
            values = [sample[name] for sample in samples]
            first, last = statistics.fmean(values[:tenth]), statistics.fmean(values[-tenth:])
            slope = statistics.linear_regression(hours, values).slope
            grew = last - first > max(0.5, MOST_GROWTH * first) and not name.endswith(UNJUDGED)
            found[name] = Trend(first, last, slope, grew)
    return found


UNJUDGED = ("PSS, MiB", "run directory, MiB")
"""The one falls when other programs begin that map the same libraries, the other has a line for each epoch."""


def sample(trainer: int, temporary: Path, run: Path, shared: set[Path]) -> Sample:
    """What is held now.

    Args:
        trainer: the id of the process that trains.
        temporary: the folder of its temporary files.
        run: its run directory.
        shared: files in /dev/shm that the processes held before; those that they hold now are added.
    """
    workers = below(trainer)
    every = {pid: found for pid in (trainer, *workers) if (found := held(pid)) is not None}
    parts = {"trainer": [trainer], "workers": workers}
    parts |= {f"worker {number}": [pid] for number, pid in enumerate(workers, 1)} if len(workers) > 1 else {}
    values: dict[str, float] = {"processes": len(every)}
    for name, pids in parts.items():
        holdings = [every[pid] for pid in pids if pid in every]
        values[f"{name}: RSS, MiB"] = sum(one.rss for one in holdings) / _MIB
        values[f"{name}: PSS, MiB"] = sum(one.pss for one in holdings) / _MIB
        values[f"{name}: own, MiB"] = sum(one.own for one in holdings) / _MIB
        values[f"{name}: descriptors"] = sum(one.descriptors for one in holdings)
        values[f"{name}: threads"] = sum(one.threads for one in holdings)
    shared.update(*map(in_shared_memory, every))
    there = [path for path in shared if path.exists()]
    values["/dev/shm, MiB"] = sum(map(_size_of, there)) / _MIB
    values["/dev/shm: entries"] = len(there)
    values["temporary files, MiB"] = _size(temporary)
    values["temporary files: entries"] = sum(1 for _ in temporary.rglob("*"))
    values["run directory, MiB"] = _size(run)
    return values


def _size(folder: Path) -> float:
    """Of the files in a folder, in MiB."""
    return sum(_size_of(Path(path, name)) for path, _, names in os.walk(folder) for name in names) / _MIB


def _size_of(path: Path) -> int:
    """Of a file, in bytes; 0 if it has just gone."""
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        return 0


def soak(options: argparse.Namespace, folder: Path) -> tuple[list[float], list[Sample], list[str]]:
    """Trains, and watches.

    Returns:
        Hours after the start, what was held then, and what was wrong with the end.
    """
    temporary, run = folder / "tmp", folder / "run"
    temporary.mkdir()
    settings = {
        "data.name": "communities",
        "data.size": options.size,
        "pipeline.servers": options.servers,
        "pipeline.intervals": options.intervals,
        "pipeline.mode": options.mode,
        "tensor.backend": "local",
        "tensor.workers": options.workers,
        "train.checkpoint_every": options.checkpoint_every,
    }
    words = [f"{key}={value}" for key, value in settings.items()] + options.settings
    command = [sys.executable, "-m", "dorylax", "train", "--epochs=100000", f"--out={run}"]
    command += [word for setting in words for word in ("--set", setting)]
    said = folder / "errors"
    with said.open("wb") as errors:
        environment = {**os.environ, "TMPDIR": str(temporary)}
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, env=environment)
    hours: list[float] = []
    samples: list[Sample] = []
    shared: set[Path] = set()
    metrics = run / "seed-0" / "metrics.jsonl"
    try:
        while not _lines(metrics) and process.poll() is None:  # until then it compiles
            time.sleep(0.1)
        begin = time.monotonic()
        end = begin + 60 * options.minutes
        while process.poll() is None and time.monotonic() < end:
            hours.append((time.monotonic() - begin) / 3600)
            samples.append(sample(process.pid, temporary, run, shared))
            time.sleep(options.every)
        wrong = _ended(process, temporary, run / "seed-0")
        if left := [str(path) for path in shared if path.exists()]:
            wrong.append(f"shared memory is left: {', '.join(left)}")
    finally:
        process.kill()
        process.wait()
    if wrong:
        wrong += said.read_text(errors="replace").splitlines()[-1:]
    print(f"{_lines(metrics)} epochs, {len(samples)} samples in {60 * hours[-1] if hours else 0:.1f} minutes")
    return hours, samples, wrong


def _lines(path: Path) -> int:
    """Of a file that may not be there yet."""
    return path.read_bytes().count(b"\n") if path.is_file() else 0


def _ended(process: subprocess.Popen[bytes], temporary: Path, run: Path) -> list[str]:
    """Sends SIGTERM; what is wrong with what is then there."""
    if process.poll() is not None:
        return [f"the run ended by itself, with exit status {process.returncode}"]
    workers = below(process.pid)
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        return [f"SIGTERM had not ended the run after {_END_SECONDS:g} s"]
    wrong = []
    if process.returncode != 128 + signal.SIGTERM:
        wrong.append(f"SIGTERM ended the run with exit status {process.returncode}")
    epochs = _lines(run / "metrics.jsonl")
    summary = json.loads(run.joinpath("summary.json").read_text())
    if summary["stopped"] != "signal" or summary["epochs"] != epochs:
        wrong.append(f"the summary says {summary['stopped']} after {summary['epochs']} epochs, of {epochs}")
    if not run.joinpath("checkpoints", f"epoch-{epochs:08d}", "manifest.json").is_file():
        wrong.append(f"epoch {epochs} was not saved")
    if left := [pid for pid in workers if held(pid) is not None]:
        wrong.append(f"workers are left: {left}")
    if files := [path.name for path in temporary.iterdir()]:
        wrong.append(f"temporary files are left: {', '.join(files)}")
    return wrong


def draw(path: Path, hours: Sequence[float], samples: Sequence[Sample], warm_up: float) -> None:
    """Allocated memory above; descriptors and threads below."""
    from matplotlib.figure import Figure  # late: only for the plot

    figure = Figure((7.0, 6.0), layout="constrained")
    minutes = [60 * hour for hour in hours]
    endings = (("own, MiB",), ("descriptors", "threads"))
    for axes, ending in zip(figure.subplots(2, sharex=True), endings, strict=True):
        for name in (name for name in samples[0] if name.startswith(_DRAWN) and name.endswith(ending)):
            axes.plot(minutes, [one.get(name) for one in samples], label=name.removesuffix(", MiB"))
        axes.axvline(60 * warm_up, color="0.6", linestyle=":")
        axes.set_ylim(bottom=0)
        axes.set_ylabel("allocated, MiB" if len(ending) == 1 else "number")
        axes.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
        axes.grid(alpha=0.3)
    axes.set_xlabel("minutes since the first epoch")
    figure.savefig(path, dpi=160)


def main() -> None:
    """Soaks."""
    parser = parser_of(__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="(default: 60)")
    parser.add_argument("--warm-up", type=float, help="minutes that are not judged (default: a twelfth of them)")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between samples (default: 5)")
    parser.add_argument("--size", default="tiny", help="of the graph `communities` (default: tiny)")
    parser.add_argument("--servers", type=int, default=8)
    parser.add_argument("--intervals", type=int, default=64, help="of each server (default: 64)")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--mode", default="async", help="pipe or async (default)")
    parser.add_argument("--checkpoint-every", type=int, default=5, help="epochs (default: 5)")
    parser.add_argument("--set", dest="settings", metavar="KEY=VALUE", action="append", default=[], help="repeatable")
    parser.add_argument("--plot", type=Path, help="draw the figure here")
    parser.add_argument("--json", type=Path, help="also write all samples to this file")
    tiny = {"minutes": 0.05, "warm_up": 0.0, "every": 0.5, "servers": 2, "intervals": 2, "workers": 1}
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
    write_json(options.json, {"hours": hours, "samples": samples, "wrong": wrong})
    if options.plot is not None:
        draw(options.plot, hours, samples, warm_up)
    if not options.tiny:  # which measures nothing
        wrong += [f"{name} grew" for name, trend in found.items() if trend.grew]
    print("the end: " + ("; ".join(wrong) or "clean"))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
