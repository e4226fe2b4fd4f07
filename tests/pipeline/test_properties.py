"""What holds of every run, whatever takes how long and whatever fails.

A `Witness` watches a run from outside. It recomputes everything from what is published, read, sent and computed: rows are
known by their contents, not by their stamps, and `min_epoch` is counted here once more.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support.pipelines import compiled_once, make_pipeline, messy_data, named

from dorylax.clock import Clock
from dorylax.cost import DEFAULT_CLUSTER, Cluster, Variation
from dorylax.graph.dataset import Dataset
from dorylax.ops import row_operators
from dorylax.pipeline import engine, setup, tensor_calls
from dorylax.pipeline.buffers import MergeBuffer, PartsBuffer
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.graph_server import GraphServer
from dorylax.pipeline.host import GraphHost
from dorylax.pipeline.messages import RowsMessage
from dorylax.pipeline.parameters import Applied, Complete, ParameterClient, ParameterServers, Pulled
from dorylax.pipeline.parameters.messages import ServerState
from dorylax.pipeline.parameters.oscillation import WINDOW
from dorylax.pipeline.parameters.policy import DueStep, Late, LateGradients
from dorylax.pipeline.parameters.server import ParameterServer, Whole
from dorylax.pipeline.parameters.stash import StashError
from dorylax.pipeline.prepare import Prepared
from dorylax.pipeline.progress import Progress
from dorylax.pipeline.run import PipelineEpoch
from dorylax.pipeline.steps import RUN
from dorylax.pipeline.transport import Address, InProcessTransport, RequestHandler
from dorylax.pipeline.visit import Visit
from dorylax.serverless.backends.inline import InlineBackend
from dorylax.serverless.config import TensorConfig
from dorylax.serverless.task import TaskFailedError, TaskKey, TensorResult, TensorTask

ASYNCHRONOUS = {"gcn": 40, "sage": 12, "gat": 4, "drifting": 8, "BatchNorm": 12}
SYNCHRONOUS = {"gcn": 14, "sage": 4, "gat": 2, "drifting": 2, "BatchNorm": 4}
"""How many runs of each model, 102 in all."""

NO_SHRINK = [Phase.explicit, Phase.generate]  # it would take minutes, and cases are small
EDGE_CHUNK = 40
MOST_FAILURES = 5  # of one task or message: fewer than the attempts that are made

Pair = tuple[int, int]  # interval, epoch
HERE: contextvars.ContextVar[tuple[GraphServer, Visit] | None] = contextvars.ContextVar("HERE", default=None)
CALL: contextvars.ContextVar[TaskKey | None] = contextvars.ContextVar("CALL", default=None)


@pytest.fixture(autouse=True, scope="module")
def one_compilation() -> Iterator[None]:
    with compiled_once(40, EDGE_CHUNK):
        yield


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
    """

    model: str
    options: dict[str, Any]
    epochs: int
    barriers: frozenset[int] = frozenset()
    switch: int | None = None
    variations: tuple[tuple[float, float, float], ...] = ((0.2, 0.0, 1.0),) * 3
    latency: float = 2e-4
    faults: float = 0.0
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

    @property
    def intervals(self) -> int:
        return self.config.servers * self.config.intervals

    @property
    def predicts(self) -> bool:
        return self.config.predict_weights not in (None, "none")

    @property
    def staleness(self) -> int:
        return self.config.staleness or 0


# From machines that are all alike to such that differ by orders of magnitude.
VARIATIONS = st.tuples(st.sampled_from([0.0, 0.3, 1.5]), st.sampled_from([0.0, 0.2]), st.sampled_from([5.0, 50.0]))
OPTIONS = {
    "servers": st.integers(1, 3),
    "intervals": st.integers(1, 4),
    "parameter_servers": st.integers(1, 3),
    "sync_every": st.integers(1, 3),
    "graph_threads": st.integers(1, 2),
    "tensor": st.builds(
        TensorConfig, slots=st.integers(1, 3), autotune=st.booleans(), relaunch=st.sampled_from([1.5, 5.0])
    ),
    "partitioner": st.sampled_from(["random", "metis"]),
}
UPDATES = st.just({"update": "per_interval"}) | st.fixed_dictionaries(
    {
        "update": st.just("per_epoch"),
        "predict_weights": st.sampled_from(["none", "linear", "optimizer"]),
        "gradient_share": st.sampled_from([0.4, 0.8, 1.0]),
        "ahead_share": st.sampled_from([0.0, 0.5, 1.0, 1.0]),
        "oscillation_limit": st.sampled_from([0.0, 1.0, 1.0]),
    }
)
ASYNC_OPTIONS = {
    "mode": st.just("async"),
    "staleness": st.integers(0, 3),
    "smoothing": st.sampled_from([0.0, 0.5]),
    "delay_scaling": st.sampled_from([None, 3]),
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
            raise TaskFailedError
        token = CALL.set(task.key)
        result = await self._inner.run(task, attempt)
        CALL.reset(token)
        if befalls("after"):
            raise TaskFailedError
        return result

    async def warm(self) -> None:
        await self._inner.warm()

    def close(self) -> None:
        self._inner.close()


class FaultyTransport:
    """Loses messages and answers, and delivers messages again, late."""

    def __init__(self, faults: Faults, witness: Witness, clock: Clock, inner: InProcessTransport) -> None:
        self._faults, self._witness, self._clock, self._inner = faults, witness, clock, inner

    def register(self, address: Address, handler: RequestHandler) -> None:
        self._inner.register(address, handler)

    async def request(
        self, sender: Address, receiver: Address, kind: str, payload: Any, *, num_bytes: int, order: tuple[int, ...]
    ) -> Any:
        message = (sender.role, sender.index, receiver.role, receiver.index, kind, order)
        done = self._witness.sending(kind, message)
        befalls = self._faults.of(message)

        def deliver() -> Any:
            return self._inner.request(sender, receiver, kind, payload, num_bytes=num_bytes, order=order)

        async def deliver_late() -> None:
            await self._clock.sleep(self._faults.delay(message), (*order, 2))
            with contextlib.suppress(StashError):  # nobody hears the answer to a repeat
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


class Witness:
    """Watches a run, and fails it when something happens that must not.

    Attributes:
        stale: reads of rows of earlier epochs.
        predicted: pulls of weights that were predicted.
        quorums: waits that a share of fresh rows ended.
        late: gradients that came after the step of their epoch.
        faults: what went wrong.
    """

    def __init__(self, case: Case) -> None:
        self.case, self.faults = case, Faults(case)
        self.synchronous_from = 0 if case.config.synchronous else 1000
        self.stale = self.predicted = self.quorums = self.late = 0
        self._rows: dict[tuple[int, int], dict[int, np.ndarray]] = {}  # (publication, interval) -> epoch -> rows
        self._sums: dict[tuple[int, int], dict[int, np.ndarray]] = {}  # (step, interval) -> epoch -> partial sums
        self._parts: dict[tuple[int, int], dict[int, list[np.ndarray]]] = {}  # (step, interval) -> epoch -> its parts
        # (server, publication, interval): the same as the server has smoothed them; how often, and their mean from zero
        self._received: dict[tuple[int, int, int], dict[int, np.ndarray]] = {}
        self._sent: dict[tuple[int, int, int], tuple[int, Any]] = {}
        self._owners: dict[tuple[int, str], tuple[np.ndarray, np.ndarray]] = {}
        self._next = [0] * case.intervals
        self._walked: set[Pair] = set()
        self._unanswered: dict[Pair, set[Any]] = {}
        self._applied = Counter[Pair]()
        self._pulled: dict[Pair, Pulled] = {}
        self._versions: dict[int, list[np.ndarray]] = {}  # parameters, state, the optimizer's state
        self._predictions: dict[tuple[int, int], list[Any]] = {}  # (version, ahead) -> parameters
        self._holders = Counter[int]()
        self._run_ahead: dict[tuple[int, int], set[int]] = {}
        self._stages: dict[Pair, set[int]] = {}
        self._parameters: ParameterServers | None = None

    # What must hold.

    def ahead(self, epoch: int) -> int:
        """How many epochs an interval in this one may be ahead of the slowest."""
        return 0 if epoch >= self.synchronous_from else self.case.staleness

    def allowed(self, epoch: int) -> range:
        """Epochs of rows that an interval may read in an epoch."""
        synchronous = epoch == 0 or epoch >= self.synchronous_from
        ahead = 0 if epoch == 0 else self.ahead(epoch)
        return range(epoch if synchronous else max(0, epoch - ahead - 1), epoch + ahead + 1)

    def updates_before(self, epoch: int) -> int:
        """How many updates the epochs before this one are."""
        if self.case.config.update == "per_epoch":
            return epoch
        alone = min(epoch, self.synchronous_from)
        return alone * self.case.intervals + epoch - alone

    def min_epoch(self) -> int:
        """The first epoch that some interval has not finished: not all of its gradient applied, or of its rows delivered."""
        epoch = 0
        while all(
            self._applied[pair] and pair in self._walked and not self._unanswered.get(pair)
            for pair in ((interval, epoch) for interval in range(self.case.intervals))
        ):
            epoch += 1
        return epoch

    def starts(self, interval: int, epoch: int) -> None:
        assert epoch == self._next[interval], "epochs are skipped or repeated"
        self._next[interval] += 1
        slowest = self.min_epoch()
        assert epoch <= slowest + self.ahead(epoch), "started too early"
        assert not [barrier for barrier in self.case.barriers if slowest < barrier <= epoch], "started before a barrier"

    def pulls(self, interval: int, epoch: int, pulled: Pulled) -> None:
        self._pulled[interval, epoch] = pulled
        finished = max(0, epoch - self.ahead(epoch))
        assert pulled.version >= self.updates_before(finished), "weights lack finished epochs"
        if pulled.version < epoch and self.case.config.update == "per_epoch":
            server = interval % self.case.config.parameter_servers
            ahead = self._run_ahead.setdefault((server, epoch), set())
            ahead.add(interval)
            bound = range(server, self.case.intervals, self.case.config.parameter_servers)
            assert len(ahead) <= self.case.config.ahead_share * len(bound), "too many are ahead"
            watched = self.case.config.oscillation_limit < 1
            assert not watched or pulled.version > WINDOW, "somebody is ahead before enough gradients are known"
        params, state = jax.tree.leaves(pulled.params), jax.tree.leaves(pulled.state)
        behind = epoch - pulled.version if self.case.predicts and pulled.version else 0
        assert pulled.ahead == behind, f"weights of version {pulled.version} for epoch {epoch} are {pulled.ahead} ahead"
        if not pulled.ahead:
            self._same(pulled.version, params + state)
        else:
            self.predicted += 1
            self._predicted(pulled.version, pulled.ahead, params)
        self.stashes()

    def _predicted(self, version: int, ahead: int, params: list[Any]) -> None:
        """Weights for an interval that runs ahead: the same on all servers, and on a line where they are to be."""
        known = self._predictions.setdefault((version, ahead), params)
        assert all(map(np.array_equal, known, params)), "servers predict differently"
        if self.case.config.predict_weights == "linear":
            for now, before, found in zip(self._versions[version], self._versions[version - 1], params, strict=False):
                np.testing.assert_allclose(found, now + ahead * (now - before), rtol=1e-5, atol=1e-7)

    def stashes(self) -> None:
        assert self._parameters is not None
        assert self._parameters.live_stashes <= self.case.intervals

    def computes(self, number: int, place: int, operand: Any) -> None:
        """A stage reads a parameter, or the model's state."""
        call, here = CALL.get(), HERE.get()
        assert here is not None
        # A call for a worker says whose it is: whoever has it made again may be in another interval's context.
        pair = (here[1].number, here[1].epoch) if call is None else (call.interval, call.epoch)
        pulled = self._pulled[pair]
        held = jax.tree.leaves((pulled.params, pulled.state))
        assert np.array_equal(held[place], operand), "a stage has weights or state of another version"
        self._stages.setdefault(pair, set()).add(number)

    def reads(self, operands: Any, rows: Any) -> None:
        """A graph operator reads; every operand that is a buffer, or a copy of rows of one, is looked at."""
        here = HERE.get()
        if here is None or here[1].epoch < 0:
            return
        server, visit = here
        used = rows.neighbours[rows.offsets[0] : rows.offsets[-1]]
        for operand in operands:
            array = operand if operand.base is None else operand.base
            for number, buffer in server.changing_buffers():
                if array is buffer.rows:
                    self._reads_rows(server, visit, number, array, np.unique(used))
                elif array is visit.copies.get(number):
                    whole = np.zeros_like(buffer.rows)
                    sources = server.shard.unique_sources(visit.interval)
                    whole[sources] = array
                    self._reads_rows(server, visit, number, whole, sources)
            for step, merge in server.merges.items():
                if array is merge.rows:
                    self._reads_sums(server, visit, step, merge, np.unique(used))

    def _reads_rows(
        self, server: GraphServer, visit: Visit, number: int, array: np.ndarray, places: np.ndarray
    ) -> None:
        direction = server.context.plan.publications[number].direction
        owners, local = self._where(server, direction)
        for owner in np.unique(owners[places]).tolist():
            mine = places[owners[places] == owner]
            published = self._as_held(server, number, owner)
            epochs = [e for e, rows in published.items() if np.array_equal(rows[local[mine]], array[mine])]
            assert set(epochs) & set(self.allowed(visit.epoch)), f"epoch {visit.epoch} has read rows of {epochs}"
            self.stale += visit.epoch not in epochs

    def _as_held(self, server: GraphServer, number: int, owner: int) -> dict[int, np.ndarray]:
        """What an interval has published, epoch by epoch, as it lies on a server."""
        if owner in server.intervals or not self.case.config.smoothing:
            return self._rows[number, owner]
        return self._received.get((server.shard.server, number, owner), {})

    def receives(self, server: GraphServer, message: RowsMessage) -> None:
        """Rows have come from a peer, perhaps once more: what is held is their corrected mean since they had to be exact."""
        decay = self.case.config.smoothing
        if not decay or message.epoch < 0:
            return
        number, owner, epoch = message.publication, message.interval, message.epoch
        owners, local = self._where(server, server.context.plan.publications[number].direction)
        places = np.flatnonzero(owners == owner)
        held = server.buffers[number].rows[places]
        known = self._received.setdefault((server.shard.server, number, owner), {})
        if epoch in known:
            return
        times, mean = self._sent.get((server.shard.server, number, owner), (0, 0.0))
        if epoch == 0 or epoch >= self.synchronous_from:
            times, mean = 0, 0.0
        times, mean = times + 1, decay * mean + (1 - decay) * message.rows.astype(np.float64)
        np.testing.assert_allclose(held, mean / (1 - decay**times), rtol=1e-4, atol=1e-6)
        self._sent[server.shard.server, number, owner] = times, mean
        known[epoch] = np.zeros_like(self._rows[number, owner][epoch])
        known[epoch][local[places]] = held

    def _reads_sums(self, server: GraphServer, visit: Visit, step: int, merge: MergeBuffer, places: np.ndarray) -> None:
        parts = server.shard.merge()
        own, fresh = places[places < parts.starts[-1]], []
        for interval, (first, last) in enumerate(zip(parts.starts[:-1], parts.starts[1:], strict=True)):
            mine = own[(own >= first) & (own < last)]
            if mine.size:
                published = self._sums[step, server.first_interval + interval]
                epochs = [e for e, rows in published.items() if np.array_equal(rows[mine - first], merge.rows[mine])]
                assert set(epochs) & set(self.allowed(visit.epoch)), f"epoch {visit.epoch} has read sums of {epochs}"
                if interval != visit.interval:
                    fresh.append(max(epochs) >= visit.epoch)
        of_peers = self.case.config.freshness_of == "all"
        received = places[places >= parts.starts[-1]] - parts.starts[-1]
        found = set(merge.received_epochs[received].tolist())
        assert found <= set(self.allowed(visit.epoch)), f"epoch {visit.epoch} has read peers' sums of {found}"
        self.stale += len(found - {visit.epoch})
        newest = merge.received_epochs[received] if of_peers else np.empty(0)
        self._fresh_enough(visit.epoch, fresh + (newest >= visit.epoch).tolist())

    def gives(self, step: int, visit: Visit, parts: list[np.ndarray]) -> None:
        """An interval gives its parts of sums over all rows."""
        self._parts.setdefault((step, visit.number), {})[visit.epoch] = parts

    def adds_up(self, buffer: PartsBuffer) -> None:
        """An interval takes the sums of all parts."""
        here = HERE.get()
        assert here is not None
        server, visit = here
        (step,) = [step for step, one in server.parts.items() if one is buffer]
        fresh = []
        for interval in range(self.case.intervals):
            held = [rows[interval] for rows in buffer.rows]
            given = self._parts[step, interval]
            epochs = {e for e, parts in given.items() if all(map(np.array_equal, parts, held))}
            allowed = {visit.epoch} if interval == visit.number else set(self.allowed(visit.epoch))
            assert epochs & allowed, f"epoch {visit.epoch} has read parts of {epochs}"
            self.stale += visit.epoch not in epochs
            if interval in self._counted(server, {*range(self.case.intervals)} - {visit.number}):
                fresh.append(max(epochs) >= visit.epoch)
        if visit.epoch > 0:
            self._fresh_enough(visit.epoch, fresh)

    def reads_fresh(self, server: GraphServer, number: int, visit: Visit) -> None:
        """An interval may read a publication now: so many of those that it reads have published this epoch's rows."""
        if visit.epoch <= 0 or server.context.plan.publications[number].constant:
            return
        direction = server.context.plan.publications[number].direction
        edges = server.shard.incoming if direction == "in" else server.shard.outgoing
        first, last = server.bounds(visit)
        places = np.unique(edges.neighbours[edges.offsets[first] : edges.offsets[last]])
        owners, local = self._where(server, direction)
        fresh = []
        for owner in self._counted(server, set(owners[places].tolist()) - {visit.number}):
            mine = places[owners[places] == owner]
            published, held = self._as_held(server, number, owner), server.buffers[number].rows[mine]
            fresh.append(
                any(e >= visit.epoch and np.array_equal(rows[local[mine]], held) for e, rows in published.items())
            )
        self._fresh_enough(visit.epoch, fresh)

    def _counted(self, server: GraphServer, intervals: set[int]) -> set[int]:
        """Those whose rows have to be fresh."""
        return intervals if self.case.config.freshness_of == "all" else intervals & set(server.intervals)

    def _fresh_enough(self, epoch: int, fresh: list[bool]) -> None:
        synchronous = epoch == 0 or epoch >= self.synchronous_from
        share = 1.0 if synchronous else self.case.config.freshness or 0.0
        enough = f"{sum(fresh)} of {len(fresh)} blocks are of epoch {epoch}, a share of {share} has to be"
        assert sum(fresh) >= share * len(fresh) - 1e-9, enough
        self.quorums += not all(fresh) and share > 0

    def _where(self, server: GraphServer, direction: Any) -> tuple[np.ndarray, np.ndarray]:
        """Of each row of a buffer: the interval that publishes it, and which of its rows that is."""
        key = (server.shard.server, direction)
        if key not in self._owners:
            own = np.arange(server.shard.first, server.shard.last)
            rows = np.concatenate([own, server.shard.ghosts[direction]])
            owners = np.searchsorted(self.bounds, rows, side="right") - 1
            self._owners[key] = owners, rows - self.bounds[owners]
        return self._owners[key]

    def applies(self, applied: Applied) -> None:
        self._applied.update(applied.pairs)
        assert max(self._applied[pair] for pair in applied.pairs) == 1, "a gradient is applied twice"
        self.stashes()

    def holds(self, state: ServerState) -> None:
        """A parameter server has come to a version."""
        self._holders[state.version] += 1
        self._same(state.version, jax.tree.leaves((state.params, state.state, state.opt_state)))
        assert state.state.get("calls", state.version) == state.version, "state has not advanced once per version"

    def _same(self, version: int, leaves: list[Any]) -> None:
        arrays = [np.asarray(leaf) for leaf in leaves]
        known = self._versions.setdefault(version, arrays)
        assert all(one.tobytes() == other.tobytes() for one, other in zip(known, arrays, strict=False))

    def sending(self, kind: str, message: Any) -> Callable[[], None]:
        here = HERE.get()
        if here is None or kind not in ("rows", "sums", "parts", "push"):
            return lambda: None
        unanswered = self._unanswered.setdefault((here[1].number, here[1].epoch), set())
        unanswered.add(message)
        return lambda: unanswered.discard(message)

    def ends(self) -> None:
        case = self.case
        every = {(interval, epoch) for interval in range(case.intervals) for epoch in range(case.epochs)}
        assert self._applied == Counter(every), "not every gradient is applied"
        newest = self.updates_before(case.epochs)
        assert self._parameters is not None
        assert self._parameters.newest().version == newest
        assert self._holders == dict.fromkeys(range(1, newest + 1), case.config.parameter_servers)
        assert self._parameters.live_stashes == 0
        assert self._parameters.settled
        assert self._stages.keys() == every
        assert all(len(stages) > 1 for stages in self._stages.values()), "who read weights in the backward pass?"

    # How it looks on.

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Everything that is made in it is watched."""
        with pytest.MonkeyPatch.context() as patch:
            for name in ("_around_engine", "_around_servers", "_around_parameters", "_around_computation"):
                getattr(self, name)(patch)
            yield

    def _around_engine(self, patch: pytest.MonkeyPatch) -> None:
        def transport(clock: Clock, seconds: Any) -> Any:
            return FaultyTransport(self.faults, self, clock, InProcessTransport(clock, seconds))

        def parameters(params: Any, *args: Any, **options: Any) -> ParameterServers:
            self._parameters = ParameterServers(params, *args, **options)
            state = self._parameters.newest()
            self._same(0, jax.tree.leaves((state.params, state.state, state.opt_state)))
            return self._parameters

        patch.setattr(engine, "find_cluster", lambda name: self.case.cluster)
        patch.setattr(engine, "InProcessTransport", transport)
        patch.setattr(setup, "ParameterServers", parameters)
        patch.setattr(
            tensor_calls,
            "InlineBackend",
            lambda *args, **options: FaultyBackend(self.faults, InlineBackend(*args, **options)),
        )
        applied = Progress.applied

        def told(progress: Progress, news: Applied) -> None:
            self.applies(news)
            applied(progress, news)

        patch.setattr(Progress, "applied", told)

    def _around_servers(self, patch: pytest.MonkeyPatch) -> None:
        run, publish, finish, merged = GraphHost._run, GraphServer.publish, GraphServer.finish, MergeBuffer.publish

        async def runs(host: GraphHost, step: Any, visit: Visit) -> None:
            token = HERE.set((host.server, visit))
            await run(host, step, visit)
            HERE.reset(token)

        async def publishes(server: GraphServer, number: int, visit: Visit) -> None:
            bounds = server.shard.bounds
            count = bounds[visit.interval + 1] - bounds[visit.interval]
            rows = np.array(visit.value(server.context.plan.publications[number].var)[:count])
            self._rows.setdefault((number, visit.number), {})[visit.epoch] = rows
            await publish(server, number, visit)

        async def finishes(server: GraphServer, visit: Visit) -> None:
            self._walked.add((visit.number, visit.epoch))
            await finish(server, visit)

        async def merges(merge: MergeBuffer, interval: int, rows: Any, epoch: int) -> None:
            here = HERE.get()
            assert here is not None
            (step,) = [step for step, one in here[0].merges.items() if one is merge]
            self._sums.setdefault((step, here[1].number), {})[epoch] = np.array(rows)
            await merged(merge, interval, rows, epoch)

        totals, run_sum = PartsBuffer.totals, RUN["sum"]

        async def sums(server: GraphServer, step: Any, visit: Visit) -> None:
            self.gives(step.index, visit, [np.array(visit.value(one.invars[0])) for one in step.equations])
            await run_sum(server, step, visit)

        def adds_up(buffer: PartsBuffer) -> list[np.ndarray]:
            self.adds_up(buffer)
            return totals(buffer)

        wait = GraphServer.wait

        async def waits(server: GraphServer, number: int, visit: Visit) -> None:
            await wait(server, number, visit)
            self.reads_fresh(server, number, visit)

        handle = GraphServer.handle

        async def handles(server: GraphServer, kind: str, payload: Any, sender: Address) -> None:
            await handle(server, kind, payload, sender)
            if kind == "rows":
                self.receives(server, payload)

        patch.setattr(GraphServer, "handle", handles)
        patch.setattr(GraphServer, "wait", waits)
        patch.setitem(RUN, "sum", sums)
        patch.setattr(PartsBuffer, "totals", adds_up)
        patch.setattr(GraphHost, "_run", runs)
        patch.setattr(GraphServer, "publish", publishes)
        patch.setattr(GraphServer, "finish", finishes)
        patch.setattr(MergeBuffer, "publish", merges)

    def _around_parameters(self, patch: pytest.MonkeyPatch) -> None:
        pull, advance, finish = ParameterClient.pull, ParameterServer.advance, Whole.finish
        add = LateGradients.add

        async def pulls(client: ParameterClient, interval: int, epoch: int) -> Pulled:
            self.starts(interval, epoch)
            pulled = await pull(client, interval, epoch)
            self.pulls(interval, epoch, pulled)
            return pulled

        def adds(policy: LateGradients, interval: int, epoch: int, complete: Complete) -> list[DueStep | Late]:
            found = add(policy, interval, epoch, complete)
            self.late += sum(isinstance(one, Late) for one in found)
            return found

        def advances(server: ParameterServer, state: ServerState) -> None:
            advance(server, state)
            self.holds(state)

        def finishes(whole: Whole, made: Any) -> Complete:
            assert whole.pulled is self._pulled[whole.pair], "the gradient is finished with other weights"
            return finish(whole, made)

        patch.setattr(ParameterClient, "pull", pulls)
        patch.setattr(ParameterServer, "advance", advances)
        patch.setattr(LateGradients, "add", adds)
        patch.setattr(Whole, "finish", finishes)

    def _around_computation(self, patch: pytest.MonkeyPatch) -> None:
        functions, operate = Prepared.functions, row_operators.run

        def watched(prepared: Prepared, sizes: Any, *, of_workers: bool) -> dict[int, Any]:
            traced = prepared.plan.program.traced
            inputs = list(zip(traced.step.jaxpr.invars, traced.inputs, strict=True))
            held = [var for role in ("param", "state") for var, entry in inputs if entry.role == role]
            places = {var: k for k, var in enumerate(held)}

            def wrap(index: int, function: Any) -> Any:
                reads = prepared.plan.program.interfaces[index].reads
                read = [(k, places[var]) for k, var in enumerate(reads) if var in places]

                def call(*operands: Any) -> Any:
                    for k, place in read:
                        self.computes(index, place, operands[k])
                    return function(*operands)

                return call

            made = functions(prepared, sizes, of_workers=of_workers)
            return {index: wrap(index, function) for index, function in made.items()}

        def operates(name: str, params: Any, operands: Any, rows: Any, *, out: Any = None) -> Any:
            self.reads(operands, rows)
            return operate(name, params, operands, rows, out=out)

        patch.setattr(Prepared, "functions", watched)
        patch.setattr(row_operators, "run", operates)

    @functools.cached_property
    def bounds(self) -> np.ndarray:
        """First row of each interval."""
        return np.asarray([first for server in self.layout.interval_bounds for first in server[:-1]])

    layout: Any = None


def witnessed(case: Case) -> tuple[Witness, list[PipelineEpoch]]:
    """Trains under the eyes of a witness."""
    witness = Witness(case)
    with witness.watching():
        pipeline, parts = make_pipeline(case.model, graph(), case.config)
        witness.layout = pipeline.layout
        run = pipeline.start(parts.params, None, parts.state)
        try:
            for barrier in {*case.barriers, case.epochs}:
                run.barrier(barrier)
            records = []
            for epoch in range(case.epochs):
                records.append(run.run_epoch())
                assert records[-1].epoch == epoch
                assert witness.min_epoch() > epoch
                if case.switch == epoch:
                    witness.synchronous_from = run.synchronise()
            witness.ends()
        finally:
            run.close()
    return witness, records


@functools.cache
def undisturbed(model: str, servers: int, intervals: int, partitioner: Any) -> list[dict[str, np.ndarray]]:
    """Parameters after each epoch of a synchronous run in which nothing fails."""
    config = PipelineConfig(
        servers=servers, intervals=intervals, partitioner=partitioner, clock="virtual", edge_chunk=EDGE_CHUNK
    )
    pipeline, parts = make_pipeline(model, graph(), config)
    run = pipeline.start(parts.params, None, parts.state)
    try:
        return [named(run.run_epoch().params) for _ in range(6)]
    finally:
        run.close()


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
        witness, records = witnessed(case)
        assert not witness.stale
        config = case.config
        expected = undisturbed(model, config.servers, config.intervals, config.partitioner)
        for record in records:
            found = named(record.params)
            assert all(found[name].tobytes() == array.tobytes() for name, array in expected[record.epoch].items())

    check()


@pytest.mark.parametrize("model", ["gcn", "sage", "gat", "BatchNorm"])
def test_the_witness_sees_stale_reads_and_faults(model: str) -> None:
    """What the properties above look for does happen."""
    options = {"mode": "async", "staleness": 1, "servers": 3, "intervals": 4, "partitioner": "random"}
    witness, _ = witnessed(Case(model, options, 4, faults=0.2))
    assert witness.stale
    assert witness.faults.made > 10
    more = {"freshness": 0.3, "predict_weights": "linear", "parameter_servers": 3, "oscillation_limit": 1}
    witness, _ = witnessed(Case(model, options | more, 4, faults=0.2, variations=((0.3, 0.2, 5.0),) * 3))
    assert witness.quorums
    assert witness.predicted
    late = {"gradient_share": 0.5, "ahead_share": 0, "parameter_servers": 3}
    witness, _ = witnessed(Case(model, options | late, 4, faults=0.2, variations=((0.3, 0.2, 5.0),) * 3))
    assert witness.late
    assert witness.stale
