"""The trace of a pipeline: the disk is full at each of its writes, its process is killed, a bit flips, its run is long."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from flax import nnx

from dorylax.config import RunConfig
from dorylax.experiments.report.timeline import one_epoch, read_trace, task_seconds, traced_epochs
from dorylax.graph.datasets import load
from dorylax.layers import GCN
from dorylax.pipeline.config import PipelineConfig, TraceKind
from dorylax.pipeline.sampling import LIMIT
from dorylax.pipeline.timeline import Resource, Span
from dorylax.pipeline.trace import TraceWriter
from dorylax.runs.directory import RunDirectoryError
from dorylax.runs.trace import TraceWarning, read
from dorylax.trainer import Trainer
from hostile.base import Line

_MEMORY = 64 * 2**20
"""Bytes that tracing may take at 8 × 64 intervals, whatever the number of epochs."""

_EPOCHS = 40
_SETTINGS = {
    "data.size": "tiny",
    "pipeline.servers": 2,
    "pipeline.mode": "async",
    "pipeline.clock": "virtual",
    "train.checkpoint_every": 3,
    "train.eval_every": 1000,
}


def lines(folder: Path, *, tiny: bool) -> Iterator[Line]:
    """Tries the faults."""
    yield _full_while_training(folder / "training", tiny=tiny)
    yield _full_at_each_byte(folder / "bytes", every=97 if tiny else 3)
    yield _killed_at_each_byte(folder / "snapshots", every=97 if tiny else 3)
    if not tiny:
        yield _killed_while_training(folder / "killed", tries=10, kills=2)
    yield _flipped(folder / "flipped", every=997 if tiny else 5)
    yield _long_run(folder / "long", epochs=10 if tiny else 2000)


# A disk that becomes full.


def _full_while_training(folder: Path, *, tiny: bool) -> Line:
    """A run whose trace cannot be written from the k-th write on, and what goes on from it on a disk with room again."""
    short, whole = (2, 4) if tiny else (4, 8)
    straight = _fit(folder / "straight", whole)
    reference = _tasks(folder / "straight")
    faults = [3]
    if not tiny:
        with _counted() as calls:
            _fit(folder / "counted", short)
        faults = list(range(1, calls[0] + 1))
    survived = lost = 0
    for fault in faults:
        run = folder / f"full-{fault}"
        with _full_from(fault), warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", TraceWarning)
            _fit(run, short)
        there = _tasks(run) if (run / "trace.json").exists() else []
        resumed = _fit(run, whole)
        found = _tasks(run)
        good = (
            sum(issubclass(one.category, TraceWarning) for one in said) == 1
            and there == reference[: len(there)]
            and found[: len(there)] == there
            and len({_identity(task) for task in found}) == len(found)
            and resumed == straight
        )
        survived += good
        lost += not good
        shutil.rmtree(run)
    return Line("full disk from the k-th write of a trace on, trained and gone on with", len(faults), survived, lost)


def _full_at_each_byte(folder: Path, *, every: int) -> Line:
    """The disk takes so many bytes of the writes of an epoch, and no more."""
    folder.mkdir()
    path = folder / "trace.json"
    _write(path, range(2))
    before = path.read_bytes()
    _write(path, range(2, 3))
    size = len(path.read_bytes()) - len(before)
    tried = survived = 0
    for room in range(0, size, every):
        path.write_bytes(before)
        with _room_for(room), warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", TraceWarning)
            _write(path, range(2, 5))
        tried += 1
        survived += path.read_bytes() == before and len(said) == 1
    return Line("full disk at the k-th byte of an epoch of a trace", tried, survived, tried - survived)


# A process that is killed.


def _killed_at_each_byte(folder: Path, *, every: int) -> Line:
    """What is in the file when so many bytes of a write have been done, and what goes on from it."""
    folder.mkdir()
    path, straight = folder / "trace.json", folder / "straight.json"
    _write(straight, range(4))
    expected = straight.read_bytes()
    _write(path, range(2))
    snapshots: list[bytes] = []
    with _snapshots_of(path, snapshots, every):
        _write(path, range(2, 4))
    tried = survived = 0
    for content in snapshots:
        path.write_bytes(content)
        epochs = {event["args"]["epoch"] for event in read(path) if event["ph"] == "X"} - {-1}
        _write(path, range(2, 4))
        tried += 1
        survived += {0, 1} <= epochs and path.read_bytes() == expected
    return Line("killed at the k-th byte of an epoch of a trace, and gone on with", tried, survived, tried - survived)


def _killed_while_training(folder: Path, *, tries: int, kills: int) -> Line:
    """`dorylax train`, killed at random moments, and gone on with here."""
    draw = random.Random(19)
    config = RunConfig.resolve({**_SETTINGS, "train.epochs": _EPOCHS})
    straight = folder / "straight"
    Trainer.from_config(config, run_directory=straight).fit()
    expected = [(straight / name).read_bytes() for name in ("trace.json", "metrics.jsonl")]
    survived = 0
    for number in range(tries):
        seed = folder / f"killed-{number}" / "seed-0"
        good = True
        for _ in range(kills):
            _train_and_kill(seed, draw.random())
            tasks = [event for event in read(seed / "trace.json") if event["ph"] == "X"]
            good = good and len({_identity(task) for task in tasks}) == len(tasks)
        Trainer.from_config(config, run_directory=seed, resume=True).fit()
        survived += good and [(seed / name).read_bytes() for name in ("trace.json", "metrics.jsonl")] == expected
    fault = "SIGKILL at a random moment, and gone on with: the same trace, the same bits"
    return Line(fault, tries, survived, tries - survived)


def _train_and_kill(seed: Path, share: float) -> None:
    """Kills within the next epochs."""
    metrics = seed / "metrics.jsonl"
    begun = metrics.read_bytes().count(b"\n") if metrics.exists() else 0
    enough = begun + 1 + int(share * _EPOCHS / 4)
    process = subprocess.Popen(_command(seed.parent), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if metrics.exists() and metrics.read_bytes().count(b"\n") >= enough:
            break
        time.sleep(0.001)
    time.sleep(0.02 * share)
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGKILL)
    process.wait()


def _command(run: Path) -> list[str]:
    words = [word for key, value in _SETTINGS.items() for word in ("--set", f"{key}={value}")]
    words += ["--resume"] * run.exists()
    return [sys.executable, "-m", "dorylax", "train", *words, "--epochs", str(_EPOCHS), "--out", str(run)]


# A bit that flips.


def _flipped(folder: Path, *, every: int) -> Line:
    """A trace in which one bit is another: the run goes on and traces what it does, and a report shows it or refuses it."""
    folder.mkdir()
    path = folder / "trace.json"
    _write(path, range(2))
    whole = path.read_bytes()
    tried = survived = crashed = 0
    for bit in range(0, 8 * len(whole), every):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        tried += 1
        try:
            _report(path)
            _write(path, range(2, 3), "sample")
        except Exception:  # whatever it is, it would have ended the command
            crashed += 1
            continue
        tasks = [line for line in path.read_bytes().split(b"\n") if b'"ph":"X"' in line]
        survived += all(b'"epoch":2,' in line for line in tasks[-20:])
    return Line(
        "a flipped bit of a trace, reported and gone on with", tried, survived, tried - survived - crashed, crashed
    )


def _report(path: Path) -> None:
    with contextlib.suppress(RunDirectoryError):  # one line
        trace = read_trace(path)
        if trace is not None:
            for take in (one_epoch, task_seconds, traced_epochs):
                take(trace)


# A long run.


def _long_run(folder: Path, *, epochs: int) -> Line:
    """8 servers of 64 intervals, 22 tasks each: what is kept in memory and on disk of thousands of epochs."""
    folder.mkdir()
    path = folder / "trace.json"
    writer = TraceWriter.begin(path, "sample", epochs=0, continues=True)
    assert writer is not None
    names: list[tuple[str, Resource]] = [("GA", "graph")] * 4 + [("AV", "tensor")] * 6 + [("SC → 1", "network")] * 12
    before = most = _resident()
    for epoch in range(epochs):
        for number in range(8 * 64):
            for place, (name, resource) in enumerate(names):
                start = epoch + (number // 64 + place) / 40
                writer.add(Span(name, resource, number // 64, number, epoch, start, start + 1 / 80, place))
        writer.flush(epoch + 1)
        most = max(most, _resident())
    writer.close()
    size = path.stat().st_size
    good = most - before <= _MEMORY and size <= LIMIT
    grown = f"{(most - before) / 2**20:.0f} MiB of memory" if before else "memory unknown"
    label = f"8 × 64 intervals, {epochs:,} epochs: {size / 2**20:.0f} MiB of trace, {grown}"
    return Line(label, 1, int(good), int(not good))


def _resident() -> int:
    """Bytes of this process in memory; 0 where nobody says so."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


# What they share.


def _fit(folder: Path, epochs: int) -> list[bytes]:
    """Trains, or goes on, to so many epochs; losses and parameters as bytes."""
    data = load("communities", size="tiny")
    model = GCN(data.num_features, 8, data.num_classes, rngs=nnx.Rngs(0))
    trainer = Trainer(
        model,
        data,
        optimizer=optax.adam(0.01),
        epochs=epochs,
        eval_every=1000,
        checkpoint_every=2,
        run_directory=folder,
        resume=True,
        pipeline=PipelineConfig(servers=2, intervals=2, mode="async", clock="virtual"),
    )
    result = trainer.fit()
    losses = np.float64([record.loss for record in result.history])
    return [np.asarray(leaf).tobytes() for leaf in (losses, *jax.tree.leaves(result.last_params))]


def _tasks(run: Path) -> list[dict[str, Any]]:
    """Of a trace that has to be strict JSON."""
    events = json.loads((run / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    return [event for event in events if event["ph"] == "X"]


def _identity(task: dict[str, Any]) -> tuple[Any, ...]:
    """What no two tasks of a run have in common."""
    return (task["name"], task["pid"], task["tid"], task["ts"], task["dur"], *task["args"].values())


def _write(path: Path, epochs: range, kind: TraceKind = "full") -> None:
    """Goes on with a trace, whose epochs have 20 tasks."""
    writer = TraceWriter.begin(path, kind, epochs=epochs.start, continues=True)
    assert writer is not None
    for epoch in epochs:
        for k in range(20):
            writer.add(Span("GA", "graph", k % 2, k, epoch, epoch + k / 25, epoch + (k + 5) / 25, 1))
        writer.flush(epoch + 1)
        writer.checkpoint(settled=True)
    writer.close()


Pwrite = Callable[[int, Any, int], int]


@contextlib.contextmanager
def _instead_of_pwrite(make: Callable[[Pwrite], Pwrite]) -> Iterator[None]:
    """Only traces are written by `os.pwrite`."""
    real = os.pwrite
    os.pwrite = make(real)  # type: ignore[assignment]
    try:
        yield
    finally:
        os.pwrite = real


@contextlib.contextmanager
def _counted() -> Iterator[list[int]]:
    calls = [0]

    def make(real: Pwrite) -> Pwrite:
        def counting(file: int, content: Any, place: int) -> int:
            calls[0] += 1
            return real(file, content, place)

        return counting

    with _instead_of_pwrite(make):
        yield calls


def _full_from(fault: int) -> contextlib.AbstractContextManager[None]:
    """From this write on there is room for nothing that lies behind the end of the file."""
    calls = [0]

    def make(real: Pwrite) -> Pwrite:
        def limited(file: int, content: Any, place: int) -> int:
            calls[0] += 1
            if calls[0] >= fault and (calls[0] == fault or place + len(content) > os.fstat(file).st_size):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(file, content, place)

        return limited

    return _instead_of_pwrite(make)


def _room_for(room: int) -> contextlib.AbstractContextManager[None]:
    """The file may grow by so many bytes; what it has room for already can be written again."""
    left = [room]

    def make(real: Pwrite) -> Pwrite:
        def limited(file: int, content: Any, place: int) -> int:
            inside = max(0, min(len(content), os.fstat(file).st_size - place))
            taken = min(len(content), inside + left[0])
            if not taken:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            left[0] -= taken - inside if taken > inside else 0
            return real(file, bytes(content)[:taken], place)

        return limited

    return _instead_of_pwrite(make)


def _snapshots_of(path: Path, snapshots: list[bytes], every: int) -> contextlib.AbstractContextManager[None]:
    """Keeps what is in the file before, between and after the bytes of each write."""

    def make(real: Pwrite) -> Pwrite:
        def slow(file: int, content: Any, place: int) -> int:
            text = bytes(content)
            for begin in range(0, len(text), every):
                snapshots.append(path.read_bytes())
                real(file, text[begin : begin + every], place + begin)
            snapshots.append(path.read_bytes())
            return len(text)

        return slow

    return _instead_of_pwrite(make)
