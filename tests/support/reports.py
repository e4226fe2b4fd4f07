"""A small study with every part of a report, made without training: histories, summaries and traces by formula."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dorylax.environment import environment
from dorylax.experiments.folder import read_study, write_sweep
from dorylax.experiments.report import write_report
from dorylax.experiments.runner import directory, fail
from dorylax.experiments.sweep import Condition, Run, Sweep
from dorylax.experiments.sweep_file import read
from dorylax.store.digest import sealed
from dorylax.store.durable import write_json
from dorylax.store.servers import GraphServerMetrics, ParameterServerMetrics, ServerMetrics, ServersWriter
from dorylax.store.trace import TraceFile, line_of
from support.run_directories import begun

TEXT = """\
description: Does <staleness> pay & how?
base: {data.size: tiny, train.epochs: 12, pipeline.servers: 2, pipeline.intervals: 2, pipeline.clock: virtual}
grid: {model.name: [gcn, gat]}
zip:
  pipeline.mode: [pipe, async, async]
  pipeline.staleness: [null, 0, 1]
exclude: [{model.name: gat, pipeline.staleness: 1}]
seeds: 3
compare: {baseline: {pipeline.mode: pipe}}
"""
EPOCHS = 12


TARGET = TEXT.replace("{pipeline.mode: pipe}}", "{pipeline.mode: pipe}, target: 0.6}")
"""The same, with a target that all runs reach."""


LONG = """\
base: {data.size: tiny, train.epochs: 12, pipeline.servers: 2, pipeline.intervals: 2, pipeline.clock: virtual}
grid: {model.hidden_features: [16, 32]}
zip:
  - optimizer.name:          [adam, adam, sgd, sgd, adam, sgd]
    optimizer.learning_rate: [0.0003, 0.0123456, 0.03, 0.1, 1.0e-05, 0.5]
  - pipeline.mode:              [pipe, async, async, async, async, async]
    pipeline.staleness:         [null, 0, 1, 1, 1, 1]
    pipeline.freshness:         [null, 0.8, 0.8, 0.8, 1, 0]
    pipeline.predict_weights:   [null, optimizer, optimizer, linear, optimizer, none]
    pipeline.stability_gate:    [true, true, true, true, false, false]
    pipeline.ahead_share:       [1.0, 1.0, 0.5, 1.0, 0.25, 1.0]
seeds: 2
compare: {baseline: {pipeline.mode: pipe}, target: 0.6}
"""
"""Twelve groups, and settings with long names."""


@functools.cache
def sweep(text: str = TEXT) -> Sweep:
    """The study's sweep, or another one of such runs."""
    return read(text, "made.yaml", "made")


def accuracy(run: Run, epoch: int) -> float:
    """A curve that rises to 0.9: synchronous runs in 2 epochs to two thirds, asynchronous ones more slowly."""
    staleness = run.setting["pipeline.staleness"]
    speed = 2.0 if staleness is None else 3.0 + staleness
    return 0.9 - 0.8 * math.exp(-(epoch + 1) / (speed + 0.1 * run.config.train.seed))


def seconds(run: Run) -> float:
    """Of an epoch."""
    return 0.2 if run.setting["pipeline.staleness"] is None else 0.15


def leave(folder: Path, run: Run) -> None:
    """Writes what a run would have left."""
    found = begun(directory(folder, run), run.config.to_dict())
    lines = [
        {
            "schema": 1,
            "epoch": epoch,
            "loss": 2.0 - accuracy(run, epoch),
            **dict.fromkeys(("train_accuracy", "val_accuracy", "test_accuracy"), accuracy(run, epoch)),
            "seconds": seconds(run),
            "dollars": 0.001 * (epoch + 1),
        }
        for epoch in range(EPOCHS)
    ]
    started = {"schema": 1, "started": "2026-11-26T01:34:00+00:00"}  # the same bytes every day
    noted = environment() | found.environment | started
    write_json(found.environment_path, sealed(noted))
    found.metrics_path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    synchronous = run.setting["pipeline.staleness"] is None
    rows = {"0": 100} if synchronous else {"-1": 5, "0": 60, "1": 35}
    summary = {
        "seed": run.config.train.seed,
        "stopped": "epochs",
        "epochs": EPOCHS,
        "best_epoch": EPOCHS - 1,
        "metric": "accuracy",
        "val_accuracy": accuracy(run, EPOCHS - 1),
        "test_accuracy": accuracy(run, EPOCHS - 1),
        "final_loss": lines[-1]["loss"],
        "seconds_per_epoch": seconds(run),
        "timings": {"compile": 1.0, "train": 2.0, "evaluate": 0.5, "checkpoint": 0.0, "wall": 3.5},
        "pipeline": {
            "mode": run.setting["pipeline.mode"],
            "counters": {"rows_read": 100, "stale_rows": rows.get("1", 0)},
            "rows_by_lag": rows,
        },
    }
    found.write_summary(summary)
    writer = ServersWriter(found.servers_path, 0)
    for epoch in range(EPOCHS):
        writer.write(servers(epoch, seconds(run), rows if epoch else {}))
    file = TraceFile(found.trace_path)
    file.append([line_of(event) for event in trace(seconds(run))])
    file.close()


def servers(epoch: int, epoch_seconds: float, rows: dict[str, int]) -> list[ServerMetrics]:
    """Two graph servers, of which the second is late: it is twice as busy and hardly waits; and a parameter server."""
    graph = GraphServerMetrics(
        epoch=epoch,
        server=0,
        graph_threads=2,
        graph_tasks=10,
        graph_seconds=0.5 * epoch_seconds,
        graph_queue_mean=0.5,
        graph_queue_max=2,
        tensor_tasks=8,
        tensor_seconds=epoch_seconds,
        tensor_calls_mean=1.25,
        tensor_calls_max=3,
        gate_seconds=0.2 * epoch_seconds,
        rows_seconds=0.4 * epoch_seconds,
        weights_seconds=0.02 * epoch_seconds,
        messages=6,
        message_bytes=1_500_000,
        rows_by_lag=rows,
        calls={"answered": 8},
    )
    late = dataclasses.replace(
        graph,
        server=1,
        graph_seconds=1.0 * epoch_seconds,
        graph_queue_max=5,
        gate_seconds=0.0,
        rows_seconds=0.1 * epoch_seconds,
        calls={"answered": 8, "late": 1},
    )
    return [graph, late, ParameterServerMetrics(epoch, 0, 4, 1, 16, 1, 0.01 * epoch_seconds, 2048, 4096, 4)]


def trace(epoch_seconds: float) -> list[dict[str, Any]]:
    """Three epochs of tasks, back to back, one of whose calls was late; the first epoch takes twice as long."""
    events: list[dict[str, Any]] = []
    for thread, name in ((0, "graph 0"), (1000, "tensor 0"), (2000, "network 0"), (3000, "parameters 0")):
        events.append({"name": "thread_name", "ph": "M", "pid": 0, "tid": thread, "args": {"name": name}})
    begin = 0.0
    for epoch, length in enumerate((2 * epoch_seconds, epoch_seconds, epoch_seconds)):
        tasks = [
            ("AV", "tensor", 1000),
            ("SC → 1", "network", 2000),
            ("GA", "graph", 0),
            ("∇AV (late)", "tensor", 1000),
        ]
        for place, (name, kind, thread) in enumerate([*tasks, ("WU", "parameters", 3000)]):
            of = -1 if name == "WU" else epoch
            arguments = {"server": 0, "interval": 0, "epoch": of, "kind": kind}
            start, lasts = begin + place * length / 5, length / 5
            times = {"ts": round(1e6 * start, 3), "dur": round(1e6 * lasts, 3)}
            events.append({"name": name, "cat": kind, "ph": "X", **times, "pid": 0, "tid": thread, "args": arguments})
        begin += length
    return events


def written_study(folder: Path, text: str = TEXT, *, only: Sequence[Condition] = ()) -> None:
    """The study in a folder, or of it only some runs: all are done but one, which has failed."""
    folder.mkdir(parents=True, exist_ok=True)
    write_sweep(folder, sweep(text), only)
    *done, last = sweep(text).runs
    for run in done:
        leave(folder, run)
    fail(folder, last, "Traceback …\nValueError: a <b>bad</b> value\n")


def written_report(folder: Path, text: str = TEXT, *, only: Sequence[Condition] = ()) -> Path:
    """The study's report, in the same folder."""
    written_study(folder, text, only=only)
    return write_report([read_study(folder)], folder)
