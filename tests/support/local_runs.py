"""Synchronous runs in sandboxes, epoch after epoch, and what must be the same whatever happens to them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from dorylax.pipeline.config import PipelineConfig
from dorylax.program.artefact.stage_file import sha256_of
from dorylax.serverless.config import TensorConfig
from support.pipelines import make_pipeline, messy_data

MODEL = "gin"
"""One of its stages reads rows, weights and free values, and writes rows and sums."""

COUNTED = ("tensor_tasks", "graph_tasks", "messages", "message_bytes", "rows_read", "stale_rows")


def config(**tensor: Any) -> PipelineConfig:
    """Two servers of three intervals, two workers, and as many attempts as it takes."""
    given = {"backend": "local", "placement": "functions", "workers": 2, "slots": 3, "attempts": 1_000_000}
    return PipelineConfig(servers=2, intervals=3, parameter_servers=2, tensor=TensorConfig(**{**given, **tensor}))


class State(NamedTuple):
    """All that a run is after an epoch: its loss, hashes of all arrays, counters, the version of the weights."""

    loss: float
    trees: list[str]
    counts: list[int]
    version: int


Undisturbed = Callable[[int], list[State]]
"""What a run with nothing wrong was after each of so many epochs."""


class Run:
    """A pipeline and what it was after each epoch."""

    def __init__(self, options: PipelineConfig) -> None:
        pipeline, parts = make_pipeline(MODEL, messy_data(40, 160), options)
        self.states: list[State] = []
        self.prepared = pipeline.prepared
        self.pipeline = pipeline.start(parts.params, None, parts.state)
        self.backend: Any = self.pipeline._member.hosts[
            0
        ].server.controller._backend  # one for all servers of a process

    def train(self) -> None:
        """One epoch more."""
        record = self.pipeline.run_epoch()
        leaves = jax.tree.leaves((record.params, record.opt_state, record.state))
        counters = self.pipeline.counters()
        self.states.append(
            State(
                record.loss,
                [sha256_of(np.asarray(leaf).tobytes()) for leaf in leaves],
                [int(counters[name]) for name in COUNTED],
                self.pipeline._parameters.newest().version,
            )
        )


def check(found: Run, undisturbed: Undisturbed) -> None:
    """The same bits in every epoch, every task and gradient counted once, every call counted once."""
    wanted = undisturbed(len(found.states))
    for epoch, (one, other) in enumerate(zip(found.states, wanted, strict=True)):
        assert one == other, f"epoch {epoch}"
    assert found.states[-1].version == len(found.states)
    counters, calls = found.pipeline.counters(), found.pipeline._member.recorder.counters.calls
    assert calls.requests == counters["tensor_tasks"] + counters["retries"] + counters["late"]


@contextlib.contextmanager
def running(options: PipelineConfig) -> Iterator[Run]:
    run = Run(options)
    try:
        yield run
    finally:
        run.pipeline.close()


@contextlib.contextmanager
def undisturbed_run() -> Iterator[Undisturbed]:
    """Gives what a run with nothing wrong was after each of so many epochs; it goes on from where it was left."""
    with running(config()) as run:

        def until(epochs: int) -> list[State]:
            while len(run.states) < epochs:
                run.train()
            return run.states[:epochs]

        until(1)
        yield until
