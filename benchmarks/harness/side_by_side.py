"""A pipeline whose servers share this process, and the same one on hosts, training in turns."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import optax
from flax import nnx

from dorylax.graph.dataset import Dataset
from dorylax.jax_internals import type_of
from dorylax.layers import GCN
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.engine import Pipeline
from dorylax.pipeline.hosts.pipeline import HostsPipeline
from dorylax.pipeline.operators import row_shape
from dorylax.program.model.flax_nnx import take_apart
from harness.processes import below

_TICKS = os.sysconf("SC_CLK_TCK")


class Turn(NamedTuple):
    """What an epoch took, on average over those of a turn: seconds, and seconds of processor time of all processes."""

    wall: float
    cpu: float


class Side:
    """A GCN with dropout, by Adam, on servers that live here or in processes of their own.

    Args:
        data: the data set.
        hidden: width of the hidden layer.
        options: of `PipelineConfig`.

    Attributes:
        start_seconds: until the first epoch could begin.
        turns: those that count.
    """

    def __init__(self, data: Dataset, hidden: int, **options: Any) -> None:
        self.config = PipelineConfig(**options)
        parts = take_apart(GCN(data.num_features, hidden, data.num_classes, dropout=0.5, rngs=nnx.Rngs(0)))
        self.pipeline: Any = (Pipeline if self.config.hosts == "inline" else HostsPipeline).of(
            parts, data, optax.adam(0.01), self.config
        )
        before = set(below(os.getpid()))
        begin = time.perf_counter()
        self.run = self.pipeline.start(parts.params, None, parts.state)
        self.start_seconds = time.perf_counter() - begin
        self.pids = sorted(set(below(os.getpid())) - before)
        self.turns: list[Turn] = []
        self.epochs = 0

    def turn(self, epochs: int, *, counts: bool) -> None:
        """Trains some epochs; none goes on while the other side has its turn."""
        self.run.barrier(self.epochs + epochs)
        pids = [os.getpid(), *self.pids]
        cpu, begin = _cpu_seconds(pids), time.perf_counter()
        for _ in range(epochs):
            self.run.run_epoch()
        wall = time.perf_counter() - begin
        self.epochs += epochs
        if counts:
            self.turns.append(Turn(wall / epochs, (_cpu_seconds(pids) - cpu) / epochs))

    def sent(self) -> list[Mapping[str, tuple[int, int]]]:
        """Of each host, what has left its socket: messages, and bytes of their frames, by kind of request."""
        run: Any = self.run  # the public interface does not count what travels
        return list(run._run(lambda: run._hosts.ask_all(run._hosts.members.all, "traffic")))

    def expected(self) -> int:
        """Bytes that graph servers send each other in an epoch, by the program's cost."""
        pieces = self.pipeline.pieces
        ghosts = {direction: [len(piece.ghosts[direction]) for piece in pieces] for direction in ("in", "out")}
        intervals = sum(piece.num_intervals for piece in pieces)
        return self.pipeline.prepared.plan.program.cost(intervals=intervals, ghosts=ghosts).exchanged_epoch

    def boundary_rows(self) -> list[tuple[int, int, int]]:
        """The messages of an epoch between graph servers: from whom, to whom, bytes of the rows."""
        found = []
        for entry in self.pipeline.prepared.plan.publications:
            if not entry.constant:
                row_bytes = math.prod(row_shape(entry.var)) * type_of(entry.var).dtype.itemsize
                for piece in self.pipeline.pieces:
                    for sends in piece.sends[entry.direction]:
                        found += [(piece.server, peer, len(places) * row_bytes) for peer, places in sends]
        return found


def _cpu_seconds(pids: list[int]) -> float:
    """Processor time of living processes so far."""
    ticks = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS
