"""Asynchronous runs against a replay of them in NumPy, which is told what was read and pulled when, and no value.

`Recording` watches a run: it notes of which epochs rows were when they were read. `support.replay` does the rest.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np
import pytest
from support.gate_replica import decisions
from support.pipelines import OPTIONS, make_pipeline, messy_data, one_compilation
from support.replay import GAT, GCN, NEVER, SAGE, Model, Problem, Replay, Schedule

from dorylax.graph.dataset import Dataset
from dorylax.pipeline.buffers import MergeBuffer, RowBuffer
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.engine import Pipeline
from dorylax.pipeline.graph_server import GraphServer, Job
from dorylax.pipeline.parameters import stability
from dorylax.pipeline.parameters.client import ParameterClient
from dorylax.pipeline.parameters.records import Pulled
from dorylax.pipeline.stamps import Quorum, Reads, Stamps
from dorylax.pipeline.timeline import Span
from dorylax.serverless.config import TensorConfig

T = TypeVar("T")

EPOCHS = 30
NEVER_CHANGES = "ones"
"""What is published of data alone: made and sent once (pass `settle`)."""
FEATURES = {"gcn": 40, "sage": 5, "gat": 5}  # of GCN so many that it gathers their product with the weights
FEW = 6  # enough to tell losses apart
PLAIN = {"mode": "async", "servers": 2, "parameter_servers": 2, "clock": "virtual", "edge_chunk": 40}
MODELS: dict[str, type[Model]] = {"gcn": GCN, "sage": SAGE, "gat": GAT}


@dataclasses.dataclass(frozen=True)
class Case:
    """A run.

    Attributes:
        model: of `support.pipelines.OPTIONS`.
        staleness, freshness, prediction, intervals: of the pipeline.
        gate: whether the stability gate decides when intervals may run ahead.
        dtype: of parameters and features.
    """

    model: str
    staleness: int
    freshness: float
    prediction: str
    intervals: int = 3
    dtype: str = "float64"
    gate: bool = False

    def __str__(self) -> str:
        return f"{self.model}-S{self.staleness}-{self.freshness}-{self.prediction}-{self.dtype}"

    @property
    def config(self) -> PipelineConfig:
        options: dict[str, Any] = {
            "staleness": self.staleness,
            "freshness": self.freshness,
            "predict_weights": self.prediction,
        }
        options["tensor"] = TensorConfig(placement="functions")  # on servers alone, intervals hardly drift apart
        return PipelineConfig(**PLAIN, intervals=self.intervals, stability_gate=self.gate, **options)


CASES = [
    Case("gcn", 1, 0.5, "linear"),
    Case("gcn", 0, 0.7, "none", intervals=4, dtype="float32"),
    Case("sage", 2, 0.3, "linear"),
    Case("gat", 1, 0.3, "optimizer"),
]
GATED = Case("gcn", 2, 0.5, "optimizer", gate=True)
"""Intervals run ahead only after some epochs."""
TOLERANCE = {"float64": 1e-10, "float32": 1e-5}
"""How far a loss may be from that of the replay, which is in float64, relatively."""

every_case = pytest.mark.parametrize("case", CASES, ids=str)
compilation = one_compilation(40, 40)


class Recording:
    """Notes a run's schedule. On the virtual clock graph tasks run one after the other, each in one go.

    Args:
        pipeline: what is run.
        model: how the replay calls what intervals publish and push.

    Attributes:
        exact: intervals and epochs that found the stability gate closed.
        waits: how often a quorum was not there yet when somebody was to read.
    """

    def __init__(self, pipeline: Pipeline, model: type[Model]) -> None:
        plan = pipeline.prepared.plan
        pushes = [step.index for step in plan.steps if step.kind == "push"]
        self._published = dict(zip(range(len(plan.publications)), model.published, strict=True))
        self._pushed = dict(zip(pushes, model.pushed, strict=True))
        self._num_intervals = pipeline.layout.num_intervals
        self._job: tuple[GraphServer, Job] | None = None
        self._due: dict[tuple[MergeBuffer, int], np.ndarray] = {}
        # (server, step, row of the laid-out graph, its stamp) -> of which epochs the server's intervals' parts were
        self._sent: dict[tuple[int, int, int, int], np.ndarray] = {}
        self.schedule = Schedule({}, {}, {})
        self.exact = set[tuple[int, int]]()
        self.waits = 0

    def reads_rows(self, buffer: RowBuffer, counts: np.ndarray) -> None:
        server, job = self._here
        number = next(number for number, one in enumerate(server.buffers) if one is buffer)
        bounds = server.shard.ghost_bounds[server.context.plan.publications[number].direction]
        blocks = [*server.intervals, *np.flatnonzero(np.diff(bounds))]
        epochs = np.full(self._num_intervals, NEVER)
        epochs[blocks] = np.where(counts > 0, buffer.stamps.epochs, NEVER)
        self._note(self.schedule.rows, self._published[number], job, epochs)

    def reads_sums(self, merge: MergeBuffer, interval: int) -> None:
        server, job = self._here
        first, last = server.shard.bounds[interval : interval + 2]
        found, parts = np.full((last - first, self._num_intervals), NEVER), server.shard.merge()
        for row in range(first, last):
            for entry in parts.rows.neighbours[parts.rows.offsets[row] : parts.rows.offsets[row + 1]].tolist():
                if entry < parts.starts[-1]:
                    mine = int(np.searchsorted(parts.starts, entry, side="right")) - 1
                    found[row - first, server.first_interval + mine] = merge.own_epochs[mine]
                    continue
                (peer,) = [peer for peer, begin, end in parts.received if begin <= entry < end]
                stamp = int(merge.received_epochs[entry - parts.starts[-1]])
                theirs = self._sent[peer, job.step.index, server.shard.first + row, stamp]
                found[row - first] = np.maximum(found[row - first], theirs)
        self._note(self.schedule.sums, self._pushed[job.step.index], job, found)

    def sends_sums(self, merge: MergeBuffer, ghosts: np.ndarray) -> None:
        server, job = self._here
        parts = server.shard.merge().contributors
        stamps = self._due.pop((merge, job.current.interval))
        for ghost, stamp in zip(ghosts.tolist(), stamps.tolist(), strict=True):
            mine = parts.neighbours[parts.offsets[ghost] : parts.offsets[ghost + 1]]
            epochs = np.full(self._num_intervals, NEVER)
            epochs[server.first_interval + mine] = merge.own_epochs[mine]
            key = (server.shard.server, job.step.index, int(server.shard.ghosts["in"][ghost]), stamp)
            assert key not in self._sent, "a sum is sent twice"
            self._sent[key] = epochs

    @property
    def _here(self) -> tuple[GraphServer, Job]:
        assert self._job is not None
        return self._job

    def _note(self, notes: Any, name: str, job: Job, epochs: np.ndarray) -> None:
        key = (name, job.current.number, job.current.epoch)
        assert key not in notes, "something is read twice in an epoch"
        notes[key] = epochs

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        """Everything that runs from now on."""
        pull, compute, wait = ParameterClient.pull, GraphServer.compute, Stamps.wait
        read_rows, read_sums = RowBuffer.reads, MergeBuffer.reads
        due, ghost_sums = MergeBuffer.due, MergeBuffer.ghost_sums

        async def pulls(client: ParameterClient, interval: int, epoch: int) -> Pulled:
            pulled = await pull(client, interval, epoch)
            self.schedule.pulled[interval, epoch] = pulled.version, pulled.ahead  # type: ignore[index]
            if pulled.exact:
                self.exact.add((interval, epoch))
            return pulled

        async def computes(server: GraphServer, job: Job, work: Callable[[], T]) -> Any:
            def watched() -> T:
                self._job = server, job
                try:
                    return work()
                finally:
                    self._job = None

            return await compute(server, job, watched)

        async def waits(stamps: Stamps, epoch: int, quorum: Quorum | None = None) -> None:
            self.waits += quorum is not None and quorum.missing(stamps.epochs, epoch) > 0
            await wait(stamps, epoch, quorum)

        def reads_rows(buffer: RowBuffer, counts: np.ndarray) -> Reads:
            self.reads_rows(buffer, counts)
            return read_rows(buffer, counts)

        def reads_sums(merge: MergeBuffer, interval: int) -> Reads:
            self.reads_sums(merge, interval)
            return read_sums(merge, interval)

        def dues(merge: MergeBuffer, interval: int) -> tuple[np.ndarray, np.ndarray]:
            ghosts, stamps = due(merge, interval)
            self._due[merge, interval] = stamps
            return ghosts, stamps

        def sends_sums(merge: MergeBuffer, ghosts: np.ndarray) -> np.ndarray:
            self.sends_sums(merge, ghosts)
            return ghost_sums(merge, ghosts)

        patch.setattr(ParameterClient, "pull", pulls)
        patch.setattr(GraphServer, "compute", computes)
        patch.setattr(Stamps, "wait", waits)
        patch.setattr(RowBuffer, "reads", reads_rows)
        patch.setattr(MergeBuffer, "reads", reads_sums)
        patch.setattr(MergeBuffer, "due", dues)
        patch.setattr(MergeBuffer, "ghost_sums", sends_sums)


@dataclasses.dataclass(frozen=True)
class Recorded:
    """A finished run: losses, the problem and the schedule of its replay, and what `Recording` has counted.

    The states of the gate are those of the versions from 1 on, as the trace has them: "open" or "closed".
    """

    losses: np.ndarray
    problem: Problem
    schedule: Schedule
    waits: int
    exact: set[tuple[int, int]]
    gates: list[str | None]


@functools.cache
def recorded(case: Case) -> Recorded:
    data = messy_data(40, 160, num_features=FEATURES[case.model])
    with jax.enable_x64(case.dtype == "float64"), pytest.MonkeyPatch.context() as patch:
        pipeline, parts = make_pipeline(case.model, data, case.config, dtype=case.dtype)
        recording = Recording(pipeline, MODELS[case.model])
        recording.watch(patch)
        spans = list[Span]()
        with contextlib.closing(pipeline.start(parts.params, None, parts.state, trace=spans.append)) as run:
            losses = [run.run_epoch().loss for _ in range(EPOCHS)]
    gates = {span.version: span.gate for span in spans if span.name == "WU"}
    return Recorded(
        np.array(losses),
        problem(case.model, data, pipeline),
        recording.schedule,
        recording.waits,
        recording.exact,
        [gates[version] for version in range(1, EPOCHS + 1)],
    )


def problem(model: str, data: Dataset, pipeline: Pipeline) -> Problem:
    graph, bounds = data.graph, pipeline.layout.all_bounds
    slots = np.arange(graph.num_edges) if graph.edge_order is None else np.asarray(graph.edge_order)
    targets = np.repeat(np.arange(graph.num_vertices), np.diff(graph.incoming.offsets))
    sources = np.empty(graph.num_edges, np.int64)
    sources[slots], targets[slots] = graph.incoming.neighbours, targets.copy()
    return Problem(
        features=data.features.astype(np.float64),
        labels=data.labels,
        weights=data.train_mask / data.train_mask.sum(),
        sources=sources,
        targets=targets,
        intervals=tuple(pipeline.layout.order[first:last] for first, last in itertools.pairwise(bounds)),
        params=by_path(pipeline.parts.params),
        keys=by_path(pipeline.parts.streams),
        seed=pipeline.seed,
        rates=(OPTIONS[model]["dropout"], OPTIONS[model].get("attention_dropout", 0.0)),
    )


def by_path(tree: Any) -> dict[str, Any]:
    found = {}
    for path, leaf in jax.tree.leaves_with_path(tree):
        is_key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        found[jax.tree_util.keystr(path, simple=True, separator="/")] = leaf if is_key else np.asarray(leaf)
    return found


def distance(case: Case, schedule: Schedule, epochs: int = EPOCHS) -> float:
    """The largest relative distance of an epoch's loss in the replay from that in the run."""
    run = recorded(case)
    found = Replay(run.problem, schedule, case.prediction, MODELS[case.model]).losses(epochs)
    return float(np.max(np.abs(found / run.losses[:epochs] - 1)))


@pytest.mark.parametrize("case", [*CASES, GATED], ids=str)
def test_a_replay_has_the_losses_of_the_run(case: Case) -> None:
    assert distance(case, recorded(case).schedule) < TOLERANCE[case.dtype]


def test_a_replay_has_the_gate_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Curvatures follow from the replay's own weights and gradients, and so does the pace of every interval."""
    monkeypatch.setattr(stability, "PATIENCE", 1)  # so that it opens and closes within a short run
    run = recorded.__wrapped__(GATED)
    replay = Replay(run.problem, run.schedule, GATED.prediction, MODELS[GATED.model])
    weights, gradients, sizes = replay.path(EPOCHS)
    expected = [one.is_open for one in decisions(weights, gradients, sizes=sizes, patience=1)]
    assert run.gates == ["open" if is_open else "closed" for is_open in expected]
    assert 0 < expected.count(True) < EPOCHS - 5
    open_at = [False, *expected]
    for pair, (version, ahead) in run.schedule.pulled.items():
        if version <= EPOCHS:
            assert (pair in run.exact) == (not open_at[version])
            assert open_at[version] or not ahead
    for (name, k, epoch), epochs in run.schedule.rows.items():
        if name != NEVER_CHANGES and (k, epoch) in run.exact:
            assert (epochs[epochs != NEVER] == epoch).all()


@every_case
def test_runs_are_as_asynchronous_as_they_may_be(case: Case) -> None:
    """Each case has what it is there for: old rows and newer ones, weights of the future, quorums that are waited for."""
    run = recorded(case)
    found = [*run.schedule.rows.items(), *run.schedule.sums.items()]
    reads = [(epoch, epochs) for (name, _, epoch), epochs in found if name != NEVER_CHANGES]
    ages = np.concatenate([epoch - epochs[epochs != NEVER] for epoch, epochs in reads])
    assert np.mean(ages > 0) > 0.1
    assert ages.max() <= case.staleness + 1
    assert (ages.min() < 0) == (case.staleness > 0)
    ahead = [ahead for _, ahead in run.schedule.pulled.values()]
    assert (max(ahead) > 0) == (case.prediction != "none")
    assert run.waits > EPOCHS


@every_case
def test_enough_of_what_is_read_is_fresh(case: Case) -> None:
    partly = 0
    for (name, k, epoch), epochs in recorded(case).schedule.rows.items():
        if name == NEVER_CHANGES:
            continue
        others = np.delete(epochs, k)
        fresh = others[others != NEVER] >= epoch
        assert fresh.sum() >= case.freshness * len(fresh) - 1e-9
        partly += not fresh.all()
    assert partly > EPOCHS


@every_case
def test_ignoring_what_was_stale_or_predicted_gives_other_losses(case: Case) -> None:
    schedule = recorded(case).schedule
    assert distance(case, schedule.fresh(), FEW) > 1e-3
    assert distance(case, schedule.synchronous(), FEW) > 1e-3
    if case.prediction != "none":
        assert distance(case, schedule.unpredicted(), FEW) > 1e-3


@every_case
def test_the_epoch_of_everything_read_matters(case: Case) -> None:
    model, schedule = MODELS[case.model], recorded(case).schedule
    for name in (*model.published, *model.pushed):
        if name != NEVER_CHANGES:
            assert distance(case, schedule.older(name), FEW) > 1e-3, name
