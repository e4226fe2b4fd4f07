"""A run with the faults of a seed, and what must come of it."""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from flax import nnx

from dorylax.clock import VirtualClock
from dorylax.clock.scope import ClockScope
from dorylax.graph.datasets import load
from dorylax.layers import GCN
from dorylax.metrics.evaluation import Evaluated
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.hosts.pipeline import HostsPipeline
from dorylax.pipeline.hosts.run import HostsRun
from dorylax.pipeline.hosts.spec import RunSpec, spread
from dorylax.pipeline.run import PipelineEpoch
from dorylax.pipeline.saved import InitialState, Saved
from dorylax.program.model.flax_nnx import take_apart
from dorylax.store.base import StorageError
from dorylax.store.durable import is_temporary
from dorylax.trainer.step.objective import CLASSES
from support.simulated_hosts.disks import failing
from support.simulated_hosts.faults import DRIVER, NOTHING, Fault, Link, Plan, draw, draw_notices
from support.simulated_hosts.invariants import BrokenError, Invariants
from support.simulated_hosts.network import Network, SimulatedTransport
from support.simulated_hosts.processes import ProcessClock, SimulatedLauncher
from support.simulated_hosts.shortcuts import taken

EPOCHS = 6
_BARRIERS = (3,)
POLICIES = ("restart", "rerun", "reroute")
_HANGS_SECONDS = 120.0
_USUAL = {"servers": 2, "intervals": 2, "hosts": "processes", "host_timeout": 2.0, "max_losses": 1000}

CONFIGURATIONS: Mapping[str, dict[str, Any]] = {
    "pipe": {},
    "pipe, 3 servers, 2 parameter servers": {"servers": 3, "intervals": 1, "parameter_servers": 2},
    "pipe, 2 hosts": {"num_hosts": 2, "parameter_servers": 2},
    "async": {"mode": "async"},
    "async, S = 2, 2 parameter servers": {"mode": "async", "staleness": 2, "freshness": 0.0, "parameter_servers": 2},
    "async, per interval": {
        **{"mode": "async", "update": "per_interval", "staleness": 2, "freshness": 0.0},
        **{"parameter_servers": 2, "sync_every": 2},
    },
    "async, late gradients": {"mode": "async", "gradient_share": 0.5},
}


class Counts(NamedTuple):
    """Of a run."""

    losses: int
    drivers: int
    resumed: int


class Outcome(NamedTuple):
    """What came of a seed.

    Attributes:
        seed, configuration, recovery, plan: what it was.
        broken: what does not hold; None where all does.
        events: the hash of all that happened.
        seconds: of the simulation.
        messages: that were sent.
        counts: how many losses the run went on after, how many drivers it had, and from how many checkpoints one of them
            went on.
    """

    seed: int
    configuration: str
    recovery: str
    plan: Plan
    broken: str | None
    events: str
    seconds: float
    messages: int
    counts: Counts


def _same(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


class Results(NamedTuple):
    """Of a run: losses of epochs, what was evaluated of some, and the last parameters."""

    losses: list[float]
    evaluated: dict[int, Evaluated]
    params: Any

    def differ(self, wanted: Results) -> str | None:
        """What is not as it is wanted, bit for bit."""
        if self.losses != wanted.losses:
            return f"losses {self.losses}, not {wanted.losses}"
        for epoch in self.evaluated.keys() & wanted.evaluated.keys():
            if not _same(self.evaluated[epoch], wanted.evaluated[epoch]):
                return f"{self.evaluated[epoch]} of epoch {epoch}, not {wanted.evaluated[epoch]}"
        return None if _same(self.params, wanted.params) else "other parameters"


class _Kept(NamedTuple):
    """What a new driver goes on from."""

    saved: Saved
    trees: tuple[Any, Any, Any]
    epoch: int


class _DriverLostError(Exception):
    """The driver is killed."""


@functools.lru_cache
def _pipeline(configuration: str, gated: bool = True) -> tuple[HostsPipeline, RunSpec, contextlib.ExitStack]:
    """The pipeline, what all hosts are told, and what removes their shards."""
    config = PipelineConfig(**(_USUAL | CONFIGURATIONS[configuration]))
    if config.gated and not gated:
        config = config.model_copy(update={"stability_gate": False})
    data = load("communities", size="tiny", num_vertices=48, num_edges=240, num_features=6)
    parts = take_apart(GCN(data.num_features, 4, data.num_classes, dropout=0.5, rngs=nnx.Rngs(0)))
    pipeline = HostsPipeline.of(parts, data, optax.adam(0.01), config, sums=CLASSES.sums)
    cleanup = contextlib.ExitStack()
    return pipeline, pipeline.spec(config, cleanup), cleanup


@functools.lru_cache
def _undisturbed(configuration: str) -> Results:
    world = _World(configuration, np.random.default_rng(0), NOTHING)
    with contextlib.closing(world):
        return world.train()


def warm() -> None:
    """Runs each configuration once, undisturbed."""
    for configuration in CONFIGURATIONS:
        _undisturbed(configuration)


def run(seed: int, *, gated: bool = True, recovery: str | None = None) -> Outcome:
    """Runs a seed.

    Args:
        seed: draws the configuration, and all that happens.
        gated: False: intervals run ahead from the beginning, where the stability gate would be closed.
        recovery: the policy; None: the seed draws it, and notices.
    """
    rng = np.random.default_rng(seed)
    configuration = list(CONFIGURATIONS)[rng.integers(len(CONFIGURATIONS))]
    config = _pipeline(configuration, gated)[0].config
    processes = spread(config.servers, config.parameter_servers, config.num_hosts)
    plan = draw(rng, len(processes), EPOCHS)
    wanted = _undisturbed(configuration) if config.synchronous else None
    if recovery is None:
        also = np.random.default_rng([seed, 1])
        recovery = str(also.choice(POLICIES))
        plan = plan._replace(faults=plan.faults + draw_notices(also, len(processes), plan))
    world = _World(configuration, rng, plan, gated=gated, recovery=recovery)
    broken = None
    try:
        with contextlib.closing(world):
            found = world.train()
            if wanted is not None and (differs := found.differ(wanted)) is not None:
                broken = f"not the bits of an undisturbed run: {differs}"
    except Exception as error:
        broken = f"{type(error).__name__}: {error}"
    network = world.network
    return Outcome(
        seed,
        configuration,
        recovery,
        plan,
        broken,
        network.events.hexdigest(),
        world.clock.now(),
        network.count,
        world.counts(),
    )


class _World:
    """A clock, a network, processes, a driver, and whoever breaks them."""

    def __init__(
        self,
        configuration: str,
        rng: np.random.Generator,
        plan: Plan,
        *,
        gated: bool = True,
        recovery: str = "rerun",
    ) -> None:
        self.clock = VirtualClock()
        self.network = Network(self.clock, rng, plan.weather)
        self._rng, self._plan = rng, plan
        pipeline, spec, _ = _pipeline(configuration, gated)
        self._parts = pipeline.parts
        self._config = pipeline.config.model_copy(update={"recovery": recovery})
        self._spec = copy.copy(spec)  # with its program, unlike `dataclasses.replace`
        object.__setattr__(self._spec, "config", self._config)
        self._drivers = self._resumed = self._lost = self._lost_before = 0
        self._incarnations = itertools.count(1)
        self._run: HostsRun | None = None
        self._losses: dict[int, float] = {}
        self._evaluated: dict[int, Evaluated] = {}
        self._kept: _Kept | None = None
        self._stale: list[str] = []
        staleness = None if self._config.synchronous else self._config.staleness
        self._invariants = Invariants(staleness, self._generation)

    def train(self) -> Results:
        """Trains all epochs, with checkpoints at a barrier, where it is drained, and in the end.

        Raises:
            BrokenError: something does not hold.
        """
        disks = failing(self._rng, self._plan.disk_errors)
        with taken(), self._invariants.watching(), disks, tempfile.TemporaryDirectory() as folder:
            self._begin_faults(early=True)
            self.clock.spawn(self._watch(), name="watch")
            while True:
                try:
                    last = self._to_the_end(self._start(), Path(folder))
                    break
                except _DriverLostError:
                    self._driver_ends()
            self._check(last)
            losses = [self._losses[epoch] for epoch in range(EPOCHS)]
            return Results(losses, self._evaluated, jax.tree.map(np.array, last.params))

    def counts(self) -> Counts:
        """What there was by now."""
        lost = 0 if self._run is None else len(self._run.losses) - self._lost_before
        return Counts(self._lost + lost, self._drivers, self._resumed)

    def close(self) -> None:
        """Ends everything."""
        self._driver_ends()
        self.clock.close()

    def _to_the_end(self, run: HostsRun, folder: Path) -> PipelineEpoch:
        drained = None
        while drained is None or last.epoch + 1 < drained:
            last = self._train(run)
            if self._rng.random() < self._plan.evaluates:
                self._evaluated[last.epoch] = run.evaluate(last.params, last.state)
            if last.epoch == self._plan.drain:
                self._drain(run)
            if drained is None and last.epoch + 1 >= EPOCHS:
                drained = self._drain(run)
            if last.epoch + 1 in self._invariants.held:
                self._kept = self._stand(run, last, folder) or self._kept
        return last

    def _check(self, last: Any) -> None:
        if self._stale:
            raise BrokenError(self._stale[0])
        if not np.isfinite(last.loss):
            raise BrokenError(f"the loss is {last.loss}")
        contained = self._invariants.contained(last.params)
        intervals = range(self._config.servers * self._config.intervals)
        first = min((epoch for _, epoch in contained), default=0)
        missing = {(k, e) for k in intervals for e in range(first, last.epoch + 1)} - contained
        if missing and self._config.gradient_share == 1:
            raise BrokenError(f"the gradients {sorted(missing)[:4]} are in no step")

    def _generation(self) -> int:
        return -1 if self._run is None else self._run._hosts.generation

    def _start(self) -> HostsRun:
        """A driver, and the hosts that it starts: from the newest checkpoint, or from the beginning."""
        start = InitialState(self._parts.params, None, self._parts.state, None, 0)
        if self._kept is not None:
            start = InitialState(*self._kept.trees, self._kept.saved, self._kept.epoch)
            self._resumed += 1
        self._lost_before = 0 if start.saved is None else len(start.saved.record["losses"])
        self._drivers += 1
        endpoint = f"driver/{self._drivers}"
        self._life = ClockScope(self.clock)
        clock = ProcessClock(self._life, self._rng, self.network, endpoint, self._plan.task_seconds)
        self._launcher = SimulatedLauncher(
            self.network,
            self.clock,
            self._rng,
            incarnations=self._incarnations,
            start_seconds=self._plan.start_seconds,
            task_seconds=self._plan.task_seconds,
            zombies=self._plan.zombies,
            on_stale=self._stale.append,
        )
        self._invariants.held.clear()
        self._run = HostsRun(
            self._spec,
            start,
            self._launcher,
            clock=clock,
            make_transport=lambda: SimulatedTransport(
                self.network, clock, endpoint=endpoint, on_stale=self._stale.append
            ),
            trace=None,
            config=self._config,
            prices=None,
            epoch=start.epoch,
            cleanup=contextlib.ExitStack(),
        )
        for epoch in _BARRIERS:
            if epoch > start.epoch:
                self._run.barrier(epoch)
                self._invariants.held.add(epoch)
        if self._drivers == 1:
            self._begin_faults(early=False)
        return self._run

    def _driver_ends(self) -> None:
        """It is gone, and with it its hosts, which notice."""
        self._lost += self.counts().losses - self._lost
        if self._run is not None:
            self._run.close()
            self._run = None
        self._life.cancel()

    def _train(self, run: HostsRun) -> PipelineEpoch:
        """Trains the next epoch."""
        self._invariants.held.discard(run._epoch)
        last = run.run_epoch()
        self._losses[last.epoch] = last.loss
        return last

    def _drain(self, run: HostsRun) -> int:
        """Asks all to stand, from now on before the epoch that is returned."""
        epoch = run.drain()
        self._invariants.held.add(epoch)
        return epoch

    def _stand(self, run: HostsRun, last: PipelineEpoch, folder: Path) -> _Kept | None:
        """What is saved while nobody may start the next epoch."""
        self.clock.run(self.clock.sleep(float(self._rng.uniform(0, 0.2)), (last.epoch,)))
        found = run.save()
        if found is None:
            raise BrokenError(f"not all stand before epoch {last.epoch + 1}, which is held")
        saved = self._write(found, folder)
        return None if saved is None else _Kept(saved, (last.params, last.opt_state, last.state), last.epoch + 1)

    def _write(self, found: Saved, folder: Path) -> Saved | None:
        """A checkpoint, with the files of all hosts; None where one could not be written."""
        if isinstance(found.parts, dict):
            return found
        place = folder / str(len(list(folder.iterdir())))
        place.mkdir()
        try:
            parts = found.parts(str(place))
        except StorageError:
            if left := [path.name for path in place.rglob("*") if is_temporary(path.name)]:
                raise BrokenError(f"writing a checkpoint failed, and left {left}") from None
            return None
        return Saved(found.arrays, found.record, parts)

    def _begin_faults(self, *, early: bool) -> None:
        for fault in self._plan.faults:
            if fault.early == early:
                self.clock.spawn(self._break(fault), name=f"fault at {fault.at}")

    async def _break(self, fault: Fault) -> None:
        sleep, network = self.clock.sleep, self.network
        await sleep(fault.at, (0,))
        network.note("fault", *fault)
        match fault.kind:
            case "kill" | "lose" if fault.process == DRIVER:
                raise _DriverLostError
            case "kill" | "lose":
                self._launcher.kill(fault.process, told=fault.kind == "kill")
            case "notice":
                await self._launcher.notice(fault.process, fault.lasts)
            case "stop" | "stall":
                halted = network.stopped if fault.kind == "stop" else network.stalled
                endpoint = self._endpoint(fault.process)
                halted.begin(endpoint)
                await sleep(fault.lasts, (1,))
                halted.end(endpoint)
            case "cut":
                for link in fault.links:
                    self.clock.spawn(self._cut(link), name=f"cut at {link.begins}")

    async def _cut(self, link: Link) -> None:
        await self.clock.sleep(link.begins, (2,))
        ways = [(self._endpoint(one), self._endpoint(other)) for one, other in link.ways]
        for one, other in ways:
            self.network.cut(one, other)
        await self.clock.sleep(link.lasts, (3,))
        for one, other in ways:
            self.network.heal(one, other)

    def _endpoint(self, process: int) -> str:
        """Of who is there now; should it be replaced, nothing is wrong with whoever comes."""
        if process == DRIVER:
            return f"driver/{self._drivers}"
        return self._launcher.endpoints[process] if self._launcher.endpoints else str(process)

    async def _watch(self) -> None:
        await self.clock.sleep(_HANGS_SECONDS, (3,))
        raise BrokenError(f"it has not ended within {_HANGS_SECONDS:g} s")
