"""Whole groups of parameter servers, on a network that delays, repeats and loses messages, against a replay in order."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import jax
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.transports import delivered, posted, until_delivered

from dorylax.clock import VirtualClock
from dorylax.errors import RunError
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.parameters.client import ParameterClient
from dorylax.pipeline.parameters.group import ParameterServers
from dorylax.pipeline.parameters.records import Applied, Gradient, Pulled, ServerState, Step, Sums
from dorylax.pipeline.parameters.update import OptimizerStep
from dorylax.pipeline.saved import InitialState, Saved
from dorylax.pipeline.staleness import Ledger
from dorylax.pipeline.transport.base import Address, RequestHandler, Waiting

STATE = {"mean": np.float32(0.5), "count": np.int32(3)}
PARAMS = {"w": np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2), "b": np.zeros(2, np.float32)}
OPTIMIZER = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.linear_schedule(0.1, 0.01, 20)))


class Network:
    """Delivers after random times; with faults, also twice, or without the sender's knowing whether it did."""

    def __init__(self, clock: VirtualClock, seed: int, faults: float) -> None:
        self.clock, self.random, self.faults = clock, random.Random(seed), faults
        self.endpoints: dict[Address, RequestHandler] = {}
        self.carried: dict[tuple[Address, Address, tuple[int, ...]], str] = {}
        self.lost = Counter[tuple[Address, Address, tuple[int, ...]]]()

    def register(self, address: Address, handler: RequestHandler) -> None:
        self.endpoints[address] = handler

    async def request(self, *message: Any, **options: Any) -> Any:
        return await until_delivered(lambda: self.attempt(*message, **options))

    async def attempt(
        self, sender: Address, receiver: Address, kind: str, payload: Any, *, num_bytes: int, order: tuple[int, ...]
    ) -> Any:
        assert sender != receiver
        message = (sender, receiver, order)
        assert self.carried.setdefault(message, kind) == kind  # what tells messages apart
        assert num_bytes > 0 or kind == "pull"
        handle = self.endpoints[receiver].handle
        await self.delay(order)
        self.lose(message)
        if self.fails():
            self.clock.spawn(self.deliver_late(lambda: handle(kind, payload, sender), order))
        reply = await handle(kind, payload, sender)
        await self.delay(order)
        self.lose(message)
        return reply

    def post(self, *message: Any, waiting: Waiting, **options: Any) -> None:
        self.clock.spawn(posted(self, *message, **options))

    async def deliver_late(self, deliver: Callable[[], Awaitable[Any]], order: tuple[int, ...]) -> None:
        await self.delay(order)
        with contextlib.suppress(RunError):  # nobody hears the reply to a repeat
            await deliver()

    async def delay(self, order: tuple[int, ...]) -> None:
        await self.clock.sleep(self.random.choice([0.0, 1.0, self.random.expovariate(0.5)]), order)

    def lose(self, message: tuple[Address, Address, tuple[int, ...]]) -> None:
        if self.lost[message] < 7 and self.fails():
            self.lost[message] += 1
            raise ConnectionError(f"lost {message}")

    def fails(self) -> bool:
        return self.random.random() < self.faults


def push(client: ParameterClient, interval: int, epoch: int, stage: int, sums: Sums) -> Coroutine[Any, Any, None]:
    return delivered(lambda then: client.push(interval, epoch, stage, sums, waiting="sender", then=then))


def sums_of(params: Any, interval: int, epoch: int, stage: int) -> Sums:
    rng = np.random.default_rng([interval, epoch, stage])
    made = {name: np.asarray(leaf) * rng.random() + rng.standard_normal(leaf.shape) for name, leaf in params.items()}
    return {name: value.astype(np.float32) for name, value in made.items()} | {"interval": np.int32(interval)}


def finish(params: Any, state: Any, epoch: int, sums: Mapping[int, Sums]) -> Gradient:
    assert list(sums) == sorted(sums)
    interval = int(next(iter(sums.values()))["interval"])
    scale = 1 + np.tanh(np.asarray(state["mean"]))
    total = {name: scale * np.tanh(np.asarray(params[name])) for name in PARAMS}
    for part in sums.values():
        total = {name: value + part[name] for name, value in total.items()}
    statistics = {"mean": total["w"].mean(), "pair": (interval, epoch)}
    return total, float(np.abs(total["w"]).sum()), statistics


def advance(params: Any, state: Any, epoch: int, statistics: Any) -> Any:
    assert statistics["pair"][1] <= epoch  # before it where the first interval is late
    drift = np.float32(np.tanh(np.asarray(params["w"]).sum()) + epoch)
    mean = np.float32(0.5) * np.asarray(state["mean"]) + np.float32(0.1) * (statistics["mean"] + drift)
    return {"mean": np.float32(mean), "count": np.asarray(state["count"]) + 1}


def configured(**options: Any) -> PipelineConfig:
    usual = {"mode": "async", "update": "per_epoch", "predict_weights": "none", "stability_gate": False}
    return PipelineConfig.model_construct(**(usual | options))


class Run:
    """Intervals that pull and push, epoch by epoch, held together by the ledger; records all that happens."""

    def __init__(
        self,
        *,
        servers: int = 2,
        intervals: int = 4,
        staleness: int = 0,
        stages: int = 2,
        seed: int = 0,
        faults: float = 0.0,
        first_epoch: int = 0,
        state: ServerState | None = None,
        finish: Callable[..., Gradient] = finish,
        **options: Any,
    ) -> None:
        self.clock = VirtualClock()
        self.network = Network(self.clock, seed, faults)
        self.random, self.stages, self.first_epoch = random.Random(seed + 1), stages, first_epoch
        self.ledger = Ledger(intervals, staleness, first=first_epoch)
        self.changed: asyncio.Future[None] | None = None
        self.told: list[Applied] = []
        self.pulled: dict[tuple[int, int], Pulled] = {}
        self.states: dict[int, list[ServerState]] = {}
        self.most_stashes = 0
        self.start = state or OptimizerStep(OPTIMIZER, PARAMS).start(PARAMS, STATE)
        self.group = ParameterServers(
            InitialState(
                self.start.params,
                self.start.opt_state,
                self.start.state,
                Saved({}, {"version": self.start.version}),
                first_epoch,
            ),
            OPTIMIZER,
            configured(parameter_servers=servers, **options),
            num_intervals=intervals,
            stages=range(stages),
            finish=finish,
            advance=advance,
            transport=self.network,
            spawn=self.clock.spawn,
            on_applied=self.on_applied,
            compute=self.compute,
        )
        self.clients = [ParameterClient(Address("graph", k % 3), servers, self.network) for k in range(intervals)]
        self.servers = [self.network.endpoints[Address("parameter", index)].server for index in range(servers)]  # type: ignore[attr-defined]

    async def compute(
        self, server: int, kind: str, work: Any, num_bytes: int, order: tuple[int, ...], *, epoch: int
    ) -> Any:
        assert num_bytes == 32
        result = work()
        await self.clock.sleep(self.random.random(), order)
        if kind == "update":
            self.states.setdefault(result.version, []).append(result)
        return result

    def on_applied(self, applied: Applied) -> None:
        self.told.append(applied)
        assert self.servers[0].state.version >= applied.version
        for pair in applied.pairs:
            closes = self.ledger.finished(*pair)
            # Whoever starts the next epoch, on whichever server, finds all of this one's gradients in the weights.
            assert not closes or min(server.state.version for server in self.servers) >= applied.version
        if self.changed is not None and not self.changed.done():
            self.changed.set_result(None)

    async def interval(self, k: int, epochs: int) -> None:
        for epoch in range(self.first_epoch, epochs):
            while not self.ledger.may_start(k, epoch):
                if self.changed is None or self.changed.done():
                    self.changed = asyncio.get_running_loop().create_future()
                await asyncio.shield(self.changed)
            self.ledger.start(k, epoch)
            pulled = self.pulled[k, epoch] = await self.clients[k].pull(k, epoch)
            if epoch == self.switching and not self.ledger.allowance.synchronous(epoch):
                self.group.synchronise(self.ledger.synchronise())
            overlapping = []
            for stage in self.random.sample(range(self.stages), self.stages):
                await self.clock.sleep(self.random.random(), (k,))
                again = await self.clients[k].pull(k, epoch)
                assert again.version == pulled.version
                assert all(again.params[name] is pulled.params[name] for name in PARAMS)
                assert again.state is pulled.state
                self.most_stashes = max(self.most_stashes, self.group.live_stashes)
                pushed = push(self.clients[k], k, epoch, stage, sums_of(again.params, k, epoch, stage))
                if self.random.random() < 0.5:
                    overlapping.append(self.clock.spawn(pushed))
                else:
                    await pushed
            await asyncio.gather(*overlapping)

    def __call__(self, epochs: int, switching: int | None = None) -> Run:
        self.switching = switching

        async def all_intervals() -> None:
            await asyncio.gather(*(self.interval(k, epochs) for k in range(self.ledger.num_intervals)))
            while self.ledger.min_epoch < epochs:
                self.changed = asyncio.get_running_loop().create_future()
                await self.changed

        with self.clock:
            self.clock.run(all_intervals())
        return self


def assert_identical(first: ServerState, second: ServerState) -> None:
    assert first.version == second.version
    for one, other in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def replay(run: Run, scaling: bool, by_epoch: bool) -> dict[int, ServerState]:
    """Every version, computed one after the other from who pulled which version and what was applied in which order."""
    step = OptimizerStep(OPTIMIZER, PARAMS, advance, by_epoch=by_epoch)
    versions = {run.start.version: run.start}
    for applied in run.told:
        completes = []
        for k, epoch in applied.pairs:
            version = versions[run.pulled[k, epoch].version]
            parts = {stage: sums_of(version.params, k, epoch, stage) for stage in range(run.stages)}
            completes.append(finish(version.params, version.state, epoch, parts))
        total = completes[0][0]
        for gradients, _, _ in completes[1:]:
            total = {name: value + gradients[name] for name, value in total.items()}
        assert applied.losses == tuple(loss for _, loss, _ in completes)
        factor = run.ledger.num_intervals if len(applied.pairs) == 1 and scaling else 1
        statistics = completes[0][2]
        update = Step(applied.version, applied.pairs[0][1], total, sum(applied.losses), factor, statistics)
        versions[applied.version] = step(versions[applied.version - 1], update)
    return versions


@settings(max_examples=40)
@given(
    servers=st.integers(1, 4),
    intervals=st.sampled_from([1, 3, 6]),  # each is compiled
    staleness=st.integers(0, 2),
    stages=st.integers(1, 3),
    update=st.sampled_from(["per_epoch", "per_interval"]),
    sync_every=st.integers(1, 5),
    scaling=st.booleans(),
    share=st.sampled_from([0.4, 1.0, 1.0]),
    faults=st.sampled_from([0.0, 0.15]),
    switching=st.none() | st.integers(1, 3),
    seed=st.integers(0, 1000),
)
def test_any_order_any_repetition_any_loss(
    *,
    servers: int,
    intervals: int,
    staleness: int,
    stages: int,
    update: str,
    sync_every: int,
    scaling: bool,
    share: float,
    faults: float,
    switching: int | None,
    seed: int,
) -> None:
    share = share if update == "per_epoch" else 1.0
    run = Run(
        servers=servers,
        intervals=intervals,
        staleness=staleness,
        stages=stages,
        seed=seed,
        faults=faults,
        update=update,
        sync_every=sync_every,
        interval_step_scaling=scaling,
        gradient_share=share,
    )
    run(epochs=4, switching=switching)
    pairs = [pair for applied in run.told for pair in applied.pairs]
    assert sorted(pairs) == [(k, epoch) for k in range(intervals) for epoch in range(4)]
    assert 0 < run.most_stashes <= intervals
    assert run.group.live_stashes == 0
    assert run.group.settled
    if share == 1:
        versions = replay(run, scaling, by_epoch=update == "per_interval")
        assert list(versions) == list(range(len(run.told) + 1))
    else:  # a late gradient is in a later step, or in none: only that all servers agree is known here
        versions = {0: run.start} | {version: states[0] for version, states in run.states.items()}
        assert sorted(versions) == list(range(5))
        assert [applied.version for applied in run.told] == sorted(applied.version for applied in run.told)
    for pulled in run.pulled.values():
        np.testing.assert_array_equal(pulled.params["w"], versions[pulled.version].params["w"])
        np.testing.assert_array_equal(pulled.state["mean"], versions[pulled.version].state["mean"])
        assert pulled.state["count"] == STATE["count"] + pulled.version
    for version, states in run.states.items():
        assert len(states) == servers
        for state in states:
            assert_identical(state, versions[version])
    assert_identical(run.group.newest(), versions[max(versions)])
    for (k, epoch), pulled in run.pulled.items():
        if update == "per_epoch" and (run.ledger.allowance.synchronous(epoch) or staleness == 0):
            assert pulled.version == epoch
        elif run.ledger.allowance.synchronous(epoch):
            assert pulled.version >= epoch, k


def test_per_epoch_does_not_depend_on_who_comes_first() -> None:
    first, second = (Run(intervals=5, seed=seed, faults=0.1)(epochs=4) for seed in (1, 2))
    assert first.clock.now() != second.clock.now()
    assert_identical(first.group.newest(), second.group.newest())


def test_per_interval_does() -> None:
    """Otherwise the tests above would show little."""
    first, second = (Run(intervals=5, seed=seed, update="per_interval")(epochs=4) for seed in (1, 2))
    assert np.any(first.group.newest().params["w"] != second.group.newest().params["w"])


def test_replicas_lag_behind_under_sync_every() -> None:
    """An interval pulls what its own server has."""
    run = Run(intervals=6, update="per_interval", sync_every=5, staleness=1)
    seen: list[list[int]] = []
    told = run.on_applied

    def on_applied(applied: Applied) -> None:
        seen.append([server.state.version for server in run.servers])
        told(applied)

    for endpoint in run.network.endpoints.values():
        endpoint._on_applied = on_applied  # type: ignore[attr-defined]
    run(epochs=3)
    assert any(replica < first for first, replica in seen)


@pytest.mark.parametrize("update", ["per_epoch", "per_interval"])
def test_a_restart_from_a_saved_state_goes_on_bit_for_bit(update: str) -> None:
    """With one interval, so that there is only one order."""
    options: dict[str, Any] = {"intervals": 1, "update": update}
    straight = Run(**options)(epochs=5).group.newest()
    version, *trees = Run(**options, seed=3)(epochs=2).group.newest()
    saved = ServerState(version, *jax.tree.map(np.asarray, trees))
    assert_identical(straight, Run(**options, state=saved, first_epoch=2)(epochs=5).group.newest())


def test_nothing_is_saved_while_intervals_compute() -> None:
    run = Run(intervals=2, stages=1)

    async def one_pulls() -> None:
        assert run.group.settled
        await run.clients[1].pull(1, 0)
        assert not run.group.settled
        await push(run.clients[1], 1, 0, 0, sums_of(PARAMS, 1, 0, 0))
        await run.clock.sleep(100.0, ())
        assert run.group.live_stashes == 0
        assert not run.group.settled  # the sum of the epoch wants the other interval

    with run.clock:
        run.clock.run(one_pulls())


def test_a_gradient_in_part_on_one_server_is_on_its_way() -> None:
    run = Run(intervals=2, stages=2)
    with run.clock:
        run.clock.run(push(run.clients[1], 1, 0, 0, sums_of(PARAMS, 1, 0, 0)))
    assert [server.pending for server in run.servers] == [0, 1]
    assert not run.group.settled


def test_a_push_is_answered_before_anything_is_computed() -> None:
    run = Run(intervals=1, stages=1)
    computed = []

    async def compute(server: int, kind: str, work: Any, num_bytes: int, order: tuple[int, ...], *, epoch: int) -> Any:
        computed.append((server, kind, order))
        await run.clock.sleep(1000.0, order)
        return work()

    for endpoint in run.network.endpoints.values():
        endpoint._compute = compute  # type: ignore[attr-defined]

    async def one_pushes() -> None:
        run.ledger.start(0, 0)
        await run.clients[0].pull(0, 0)
        await push(run.clients[0], 0, 0, 0, sums_of(PARAMS, 0, 0, 0))
        assert run.clock.now() < 1000
        assert not run.told
        await run.clock.sleep(5000.0, ())
        assert len(run.told) == 1

    with run.clock:
        run.clock.run(one_pushes())
    assert len({(server, order) for server, _, order in computed}) == len(computed) == 3


def test_what_goes_wrong_in_the_background_stops_the_run() -> None:
    def fails(params: Any, state: Any, epoch: int, sums: Mapping[int, Sums]) -> Gradient:
        raise ArithmeticError("no gradient")

    with pytest.raises(ArithmeticError, match="no gradient"):
        Run(finish=fails)(epochs=1)


def test_unknown_messages_are_refused() -> None:
    run = Run()
    here = Address("parameter", 1)
    replica = run.network.endpoints[here]
    with run.clock, pytest.raises(ValueError, match="parameter server 1 cannot answer 'hello'"):
        run.clock.run(replica.handle("hello", None, here))
