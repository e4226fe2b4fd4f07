"""What holds of every run, whatever takes how long and whatever fails.

A `Witness` watches a run from outside (`support.witness`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support.pipelines import make_pipeline, messy_data, named, one_compilation
from support.transports import posted, until_delivered
from support.watching import CALL, Hooks, draw_gates
from support.witness import Witness

from dorylax.clock import Clock
from dorylax.cost import DEFAULT_CLUSTER, Cluster, Variation
from dorylax.errors import RunError
from dorylax.graph.dataset import Dataset
from dorylax.net.errors import TaskFailedError
from dorylax.pipeline import engine, prepare, tensor_calls
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.run import PipelineEpoch
from dorylax.pipeline.transport.base import Address, RequestHandler, Waiting
from dorylax.pipeline.transport.in_process import InProcessTransport
from dorylax.serverless.backends.inline import InlineBackend
from dorylax.serverless.config import TensorConfig
from dorylax.serverless.task import TensorResult, TensorTask

ASYNCHRONOUS = {"gcn": 40, "sage": 12, "gat": 4, "drifting": 8, "BatchNorm": 12}
SYNCHRONOUS = {"gcn": 14, "sage": 4, "gat": 2, "drifting": 2, "BatchNorm": 4}
"""How many runs of each model, 102 in all."""

NO_SHRINK = [Phase.explicit, Phase.generate]  # it would take minutes, and cases are small
EDGE_CHUNK = 40
MOST_FAILURES = 5  # of one task or message: fewer than the attempts that are made
compilation = one_compilation(40, EDGE_CHUNK)


def graph() -> Dataset:
    return messy_data(32, 120)


@dataclasses.dataclass(frozen=True)
class Case:
    """A run.

    Attributes:
        options: of the pipeline.
        barriers: epochs before which there is one.
        switch: synchronous from about this epoch on.
        variations: sigma, straggler probability and factor of graph servers, parameter servers and functions.
        latency: of messages, in seconds.
        faults: the probability of each fault of a task or a message.
        gate: the share of the versions whose stability gate is open.
    """

    model: str
    options: dict[str, Any]
    epochs: int
    barriers: frozenset[int] = frozenset()
    switch: int | None = None
    variations: tuple[tuple[float, float, float], ...] = ((0.2, 0.0, 1.0),) * 3
    latency: float = 2e-4
    faults: float = 0.0
    gate: float = 0.5
    seed: int = 0

    @functools.cached_property
    def config(self) -> PipelineConfig:
        return PipelineConfig(clock="virtual", edge_chunk=EDGE_CHUNK, **self.options)

    @functools.cached_property
    def cluster(self) -> Cluster:
        parts = {}
        for name, variation in zip(("graph_server", "parameter_server", "function"), self.variations, strict=True):
            parts[name] = dataclasses.replace(getattr(DEFAULT_CLUSTER, name), variation=Variation(*variation))
        return dataclasses.replace(DEFAULT_CLUSTER, latency=self.latency, **parts)


# From machines that are all alike to such that differ by orders of magnitude.
VARIATIONS = st.tuples(st.sampled_from([0.0, 0.3, 1.5]), st.sampled_from([0.0, 0.2]), st.sampled_from([5.0, 50.0]))
OPTIONS = {
    "servers": st.integers(1, 3),
    "intervals": st.integers(1, 4),
    "parameter_servers": st.integers(1, 3),
    "sync_every": st.integers(1, 3),
    "graph_threads": st.integers(1, 2),
    "tensor": st.builds(
        TensorConfig, slots=st.integers(1, 3), autotune=st.booleans(), hedge_quantile=st.sampled_from([0.5, 0.95])
    ),
    "partitioner": st.sampled_from(["random", "metis"]),
}
UPDATES = st.just({"update": "per_interval"}) | st.fixed_dictionaries(
    {
        "update": st.just("per_epoch"),
        "predict_weights": st.sampled_from(["none", "linear", "optimizer"]),
        "gradient_share": st.sampled_from([0.4, 0.8, 1.0]),
        "ahead_share": st.sampled_from([0.0, 0.5, 1.0, 1.0]),
        "stability_gate": st.sampled_from([True, True, False]),
    }
)
ASYNC_OPTIONS = {
    "mode": st.just("async"),
    "staleness": st.integers(0, 3),
    "smoothing": st.sampled_from([0.0, 0.5]),
}
FRESHNESS = st.fixed_dictionaries({"freshness": st.sampled_from([0.0, 0.3, 0.6, 0.9, 1.0])}) | st.fixed_dictionaries(
    {"freshness": st.sampled_from([0.5, 1.0]), "freshness_of": st.just("server")}
)


def possible(options: dict[str, Any]) -> dict[str, Any]:
    """Where nobody runs ahead, nobody is late."""
    return options | {"gradient_share": 1.0} if options["staleness"] == 0 else options


def cases(model: str, *, asynchronous: bool) -> st.SearchStrategy[Case]:
    more = ASYNC_OPTIONS if asynchronous else {"mode": st.sampled_from(["pipe", "no-pipe"])}
    options = st.fixed_dictionaries({**OPTIONS, **more})
    if asynchronous:
        options = st.builds(
            lambda *parts: possible({k: v for part in parts for k, v in part.items()}), options, UPDATES, FRESHNESS
        )
    return st.builds(
        Case,
        model=st.just(model),
        options=options,
        epochs=st.integers(3, 6),
        barriers=st.frozensets(st.integers(1, 2), max_size=1),
        switch=st.none() | st.integers(0, 3) if asynchronous else st.none(),
        variations=st.tuples(VARIATIONS, VARIATIONS, VARIATIONS),
        latency=st.sampled_from([1e-6, 2e-4, 2e-2]),
        faults=st.sampled_from([0.0, 0.05, 0.2]),
        gate=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
        seed=st.integers(0, 2**16),
    )


class Faults:
    """What goes wrong follows from the seed, the task or message, and the attempt: not from when it is made."""

    def __init__(self, case: Case) -> None:
        self._probability, self._seed = case.faults, case.seed
        self._attempts = Counter[Any]()
        self.made = 0

    def of(self, what: Any) -> Callable[[str], bool]:
        """Whether a kind of fault befalls this attempt."""
        attempt = self._attempts[what]
        self._attempts[what] += 1

        def befalls(kind: str) -> bool:
            fails = Random(repr((self._seed, what, attempt, kind))).random() < self._probability
            fails &= attempt < MOST_FAILURES
            self.made += fails
            return fails

        return befalls

    def delay(self, what: Any) -> float:
        return Random(repr((self._seed, what))).choice([0.0, 1e-4, 5e-2, 1.0])


class FaultyBackend:
    """Loses tasks before and after they are computed."""

    def __init__(self, faults: Faults, inner: InlineBackend) -> None:
        self._faults, self._inner = faults, inner

    async def run(self, task: TensorTask, attempt: int) -> TensorResult:
        befalls = self._faults.of(task.key)
        if befalls("before"):
            raise TaskFailedError("lost")
        token = CALL.set(task.key)
        result = await self._inner.run(task, attempt)
        CALL.reset(token)
        if befalls("after"):
            raise TaskFailedError("lost")
        return result

    async def warm(self) -> None:
        await self._inner.warm()

    def close(self) -> None:
        self._inner.close()


class FaultyTransport:
    """Loses messages and answers, and delivers messages again, late."""

    def __init__(self, faults: Faults, hooks: Hooks, clock: Clock, inner: InProcessTransport) -> None:
        self._faults, self._hooks, self._clock, self._inner = faults, hooks, clock, inner

    def register(self, address: Address, handler: RequestHandler) -> None:
        self._inner.register(address, handler)

    async def request(self, *message: Any, **options: Any) -> Any:
        return await until_delivered(lambda: self.attempt(*message, **options))

    async def attempt(self, sender: Address, receiver: Address, kind: str, payload: Any, **options: Any) -> Any:
        order = options["order"]
        message = (sender.role, sender.index, receiver.role, receiver.index, kind, order)
        done = self._hooks.sending(kind, message)
        befalls = self._faults.of(message)

        def deliver() -> Any:
            return self._inner.request(sender, receiver, kind, payload, **options)

        async def deliver_late() -> None:
            await self._clock.sleep(self._faults.delay(message), (*order, 2))
            with contextlib.suppress(RunError):  # nobody hears the answer to a repeat
                await deliver()

        if befalls("before"):
            raise ConnectionError(f"lost {message}")
        if befalls("twice"):
            self._clock.spawn(deliver_late())
        reply = await deliver()
        if befalls("after"):
            raise ConnectionError(f"lost the answer to {message}")
        done()
        return reply

    def post(self, *message: Any, waiting: Waiting, **options: Any) -> None:
        self._clock.spawn(posted(self, *message, **options))


def watching(patch: pytest.MonkeyPatch, case: Case, witness: Witness, faults: Faults) -> Hooks:
    """Everything that is made from now on is watched, and fails as the case says."""
    hooks = Hooks(lambda event, *values, **named: getattr(witness, event)(*values, **named))

    def transport(clock: Clock, seconds: Any) -> Any:
        return FaultyTransport(faults, hooks, clock, InProcessTransport(clock, seconds))

    hooks.install(patch)
    draw_gates(case.seed, case.gate, patch)
    patch.setattr(prepare, "find_cluster", lambda name: case.cluster)
    patch.setattr(engine, "InProcessTransport", transport)
    patch.setattr(
        tensor_calls, "InlineBackend", lambda *args, **options: FaultyBackend(faults, InlineBackend(*args, **options))
    )
    return hooks


def witnessed(case: Case) -> tuple[Witness, Faults, list[PipelineEpoch]]:
    """Trains under the eyes of a witness."""
    witness, faults = Witness(case.config, case.epochs, case.barriers), Faults(case)
    with pytest.MonkeyPatch.context() as patch:
        hooks = watching(patch, case, witness, faults)
        pipeline, parts = make_pipeline(case.model, graph(), case.config)
        with contextlib.closing(pipeline.start(parts.params, None, parts.state)) as run:
            for barrier in {*case.barriers, case.epochs}:
                run.barrier(barrier)
            records = []
            for epoch in range(case.epochs):
                records.append(run.run_epoch())
                assert records[-1].epoch == epoch
                assert witness.min_epoch() > epoch
                if case.switch == epoch:
                    witness.synchronous_from = run.synchronise()
            assert hooks.parameters is not None
            witness.ends(hooks.parameters.newest().version, settled=hooks.parameters.settled)
    return witness, faults, records


@functools.cache
def undisturbed(model: str, servers: int, intervals: int, partitioner: Any) -> list[dict[str, np.ndarray]]:
    """Parameters after each epoch of a synchronous run in which nothing fails."""
    config = PipelineConfig(
        servers=servers, intervals=intervals, partitioner=partitioner, clock="virtual", edge_chunk=EDGE_CHUNK
    )
    pipeline, parts = make_pipeline(model, graph(), config)
    with contextlib.closing(pipeline.start(parts.params, None, parts.state)) as run:
        return [named(run.run_epoch().params) for _ in range(6)]


@pytest.mark.parametrize("model", ASYNCHRONOUS)
def test_asynchronous_whatever_fails_and_however_long_it_takes(model: str) -> None:
    """No deadlock, no row too old, no epoch too early, every gradient once, one weight version per interval and epoch,
    equal parameter servers, few stashes.
    """

    @settings(max_examples=ASYNCHRONOUS[model], phases=NO_SHRINK)
    @given(case=cases(model, asynchronous=True))
    def check(case: Case) -> None:
        witnessed(case)

    check()


@pytest.mark.parametrize("model", SYNCHRONOUS)
def test_synchronous_whatever_fails_and_however_long_it_takes(model: str) -> None:
    """The same, and bit for bit what comes out when nothing fails."""

    @settings(max_examples=SYNCHRONOUS[model], phases=NO_SHRINK)
    @given(case=cases(model, asynchronous=False))
    def check(case: Case) -> None:
        witness, _, records = witnessed(case)
        assert not witness.stale
        config = case.config
        expected = undisturbed(model, config.servers, config.intervals, config.partitioner)
        for record in records:
            found = named(record.params)
            assert all(found[name].tobytes() == array.tobytes() for name, array in expected[record.epoch].items())

    check()


@pytest.mark.parametrize("staleness", [0, 1])
@pytest.mark.parametrize("model", ["gcn", "sage", "gat", "BatchNorm"])
def test_a_closed_gate_trains_as_pipe_bit_for_bit(model: str, staleness: int) -> None:
    """The gate stays closed for the five epochs that it needs to measure."""
    options = {"servers": 2, "intervals": 3, "partitioner": "metis", "mode": "async", "staleness": staleness}
    witness, _, records = witnessed(Case(model, options, 4, gate=0.0))
    assert witness.closed == 4 * 6
    assert not witness.stale
    for record, expected in zip(records, undisturbed(model, 2, 3, "metis"), strict=False):
        found = named(record.params)
        assert all(found[name].tobytes() == array.tobytes() for name, array in expected.items())


@pytest.mark.parametrize("model", ["gcn", "sage", "gat", "BatchNorm"])
def test_the_witness_sees_stale_reads_and_faults(model: str) -> None:
    """What the properties above look for does happen."""
    options = {"mode": "async", "staleness": 1, "servers": 3, "intervals": 4, "partitioner": "random"}
    witness, faults, _ = witnessed(Case(model, options, 4, faults=0.2))
    assert witness.stale
    assert witness.closed
    assert faults.made > 10
    more = {"freshness": 0.3, "predict_weights": "linear", "parameter_servers": 3, "stability_gate": False}
    witness, _, _ = witnessed(Case(model, options | more, 4, faults=0.2, variations=((0.3, 0.2, 5.0),) * 3))
    assert witness.quorums
    assert witness.predicted
    late = {"gradient_share": 0.5, "ahead_share": 0, "parameter_servers": 3}
    witness, _, _ = witnessed(Case(model, options | late, 4, faults=0.2, variations=((0.3, 0.2, 5.0),) * 3))
    assert witness.late
    assert witness.stale
