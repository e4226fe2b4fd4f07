"""A run with the faults of a seed, and what must come of it."""

from __future__ import annotations

import contextlib
import functools
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from flax import nnx

from dorylax.clock import VirtualClock
from dorylax.durable import leftover_of
from dorylax.graph.datasets import load
from dorylax.layers import GCN
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.hosts.pipeline import HostsPipeline
from dorylax.pipeline.hosts.run import HostsRun
from dorylax.pipeline.hosts.spec import RunSpec, spread
from dorylax.pipeline.run import PipelineEpoch
from dorylax.pipeline.saved import Saved
from dorylax.pipeline.setup import Beginnings
from dorylax.program.model.flax_nnx import take_apart
from dorylax.runs.parts import PartsWriter
from dorylax.storage.errors import StorageError
from dorylax.trainer.step.objective import CLASSES
from harness.simulation.disks import failing
from harness.simulation.faults import NOTHING, Fault, Plan, draw
from harness.simulation.invariants import BrokenError, Invariants
from harness.simulation.network import Network, SimulatedTransport
from harness.simulation.processes import SimulatedLauncher
from harness.simulation.shortcuts import taken

EPOCHS = 6
_BARRIERS = (3,)
_EVALUATES = 0.5
"""The share of epochs whose version is evaluated."""

_HANGS_SECONDS = 60.0
_USUAL = {"servers": 2, "intervals": 2, "hosts": "processes", "host_timeout": 1.0, "max_losses": 1000}

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


class Outcome(NamedTuple):
    """What came of a seed.

    Attributes:
        seed, configuration, plan: what it was.
        broken: what does not hold; None where all does.
        events: the hash of all that happened.
        seconds: of the simulation.
        messages: that were sent.
        losses: how many the run went on after.
    """

    seed: int
    configuration: str
    plan: Plan
    broken: str | None
    events: str
    seconds: float
    messages: int
    losses: int


class Results(NamedTuple):
    """Of a run: losses of epochs, and the last parameters."""

    losses: list[float]
    params: Any


@functools.lru_cache
def _pipeline(configuration: str) -> tuple[HostsPipeline, RunSpec, contextlib.ExitStack]:
    """The pipeline, what all hosts are told, and what removes their shards."""
    config = PipelineConfig(**(_USUAL | CONFIGURATIONS[configuration]))
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


def run(seed: int) -> Outcome:
    """Runs a seed."""
    rng = np.random.default_rng(seed)
    configuration = list(CONFIGURATIONS)[rng.integers(len(CONFIGURATIONS))]
    config = _pipeline(configuration)[0].config
    plan = draw(rng, len(spread(config.servers, config.parameter_servers, config.num_hosts)), EPOCHS)
    wanted = _undisturbed(configuration) if config.synchronous else None
    world = _World(configuration, rng, plan)
    broken = None
    with contextlib.closing(world):
        try:
            found = world.train()
            if wanted is not None and (found.losses != wanted.losses or not _same(found.params, wanted.params)):
                broken = f"not the same bits: losses {found.losses}, undisturbed {wanted.losses}"
        except Exception as error:
            broken = f"{type(error).__name__}: {error}"
        return Outcome(
            seed,
            configuration,
            plan,
            broken,
            world.network.events.hexdigest(),
            world.clock.now(),
            world.network.count,
            world.lost + (0 if world._run is None else len(world._run.losses)),
        )


def _same(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


class _World:
    """A clock, a network, processes, a driver, and whoever breaks them."""

    def __init__(self, configuration: str, rng: np.random.Generator, plan: Plan) -> None:
        self.clock = VirtualClock()
        self.network = Network(self.clock, rng, plan.weather)
        self._rng, self._plan = rng, plan
        self._pipeline, self._spec, _ = _pipeline(configuration)
        self._parts = self._pipeline.parts
        self._config = self._pipeline.config
        self._drivers = 0
        self._run: HostsRun | None = None
        self._stale: list[str] = []
        self.lost = 0
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
            losses: list[float] = []
            saved: tuple[Saved, Any, int] | None = None
            run = self._start(Beginnings(self._parts.params, None, self._parts.state, None, 0))
            self._begin_faults(early=False)
            for epoch in range(EPOCHS):
                if self._plan.new_driver == epoch:
                    run = self._start_again(saved, losses)
                    losses += [self._train(run).loss for _ in range(len(losses), epoch)]
                last = self._train(run)
                losses.append(last.loss)
                if self._rng.random() < _EVALUATES:
                    run.evaluate(last.params, last.state)
                if epoch == self._plan.drain:
                    self._drain(run)
                if epoch + 1 in self._invariants.held:
                    saved = self._stand(run, last, Path(folder)) or saved
            drained = self._drain(run)
            while last.epoch + 1 < drained:
                last = self._train(run)
            self._stand(run, last, Path(folder))
            self._check(last)
            return Results(losses, jax.tree.map(np.array, last.params))

    def close(self) -> None:
        """Ends everything."""
        if self._run is not None:
            self.lost += len(self._run.losses)
            self._run.close()
            self._run = None
        self.clock.close()

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

    def _start(self, beginnings: Beginnings) -> HostsRun:
        self._drivers += 1
        endpoint = f"driver/{self._drivers}"
        self._launcher = SimulatedLauncher(
            self.network, self.clock, self._rng, zombies=self._plan.zombies, on_stale=self._stale.append
        )
        self._run = None
        self._invariants.held.clear()
        self._run = HostsRun(
            self._spec,
            beginnings,
            self._launcher,
            clock=self.clock,
            make_transport=lambda: SimulatedTransport(
                self.network, self.clock, endpoint=endpoint, on_stale=self._stale.append
            ),
            trace=None,
            config=self._config,
            prices=None,
            epoch=beginnings.epoch,
            cleanup=contextlib.ExitStack(),
        )
        for epoch in _BARRIERS:
            if epoch > beginnings.epoch:
                self._run.barrier(epoch)
                self._invariants.held.add(epoch)
        return self._run

    def _start_again(self, saved: tuple[Saved, Any, int] | None, losses: list[float]) -> HostsRun:
        """A new driver, from the newest checkpoint or from the beginning."""
        assert self._run is not None
        self.lost += len(self._run.losses)
        self._run.close()
        if saved is None:
            losses.clear()
            return self._start(Beginnings(self._parts.params, None, self._parts.state, None, 0))
        kept, trees, epoch = saved
        del losses[epoch:]
        return self._start(Beginnings(*trees, kept, epoch))

    def _train(self, run: HostsRun) -> PipelineEpoch:
        """Trains the next epoch."""
        self._invariants.held.discard(run._epoch)
        return run.run_epoch()

    def _drain(self, run: HostsRun) -> int:
        """Asks all to stand, from now on before the epoch that is returned."""
        epoch = run.drain()
        self._invariants.held.add(epoch)
        return epoch

    def _stand(self, run: HostsRun, last: PipelineEpoch, folder: Path) -> tuple[Saved, Any, int] | None:
        """What is saved while nobody may start the next epoch."""
        self.clock.run(self.clock.sleep(float(self._rng.uniform(0, 0.2)), (last.epoch,)))
        found = run.save()
        if found is None:
            raise BrokenError(f"not all stand before epoch {last.epoch + 1}, which is held")
        kept = self._write(found, folder)
        return None if kept is None else (kept, (last.params, last.opt_state, last.state), last.epoch + 1)

    def _write(self, found: Saved, folder: Path) -> Saved | None:
        """A checkpoint, with the files of all hosts; None where one could not be written."""
        assert isinstance(found.parts, PartsWriter | dict)
        if isinstance(found.parts, dict):
            return found
        place = folder / str(len(list(folder.iterdir())))
        place.mkdir()
        try:
            parts = found.parts.write(str(place))
        except StorageError:
            if left := [path.name for path in place.rglob("*") if leftover_of(path)]:
                raise BrokenError(f"writing a checkpoint failed, and left {left}") from None
            return None
        return Saved(found.arrays, found.record, parts)

    def _begin_faults(self, *, early: bool) -> None:
        for fault in self._plan.faults:
            if fault.early == early:
                self.clock.spawn(self._break(fault), name=f"fault at {fault.at}")

    async def _break(self, fault: Fault) -> None:
        sleep = self.clock.sleep
        await sleep(fault.at, (0,))
        self.network.note("fault", *fault)
        if fault.kind in ("kill", "lose"):
            self._launcher.kill(fault.process, told=fault.kind == "kill")
        elif fault.kind == "stop":
            stopped = self._endpoint(str(fault.process))
            self.network.stop(stopped)
            await sleep(fault.lasts, (1,))
            self.network.resume(stopped)
        else:
            links = [(self._endpoint(one), self._endpoint(other), lasts) for one, other, lasts in fault.links]
            for one, other, _ in links:
                self.network.cut(one, other)
            now = 0.0
            for one, other, lasts in sorted(links, key=lambda link: link[2]):
                await sleep(lasts - now, (2,))
                now = lasts
                self.network.heal(one, other)

    def _endpoint(self, place: str) -> str:
        """Of who is there now; should it be replaced, nothing is wrong with whoever comes."""
        if place == "driver":
            return f"driver/{self._drivers}"
        return self._launcher.endpoints[int(place)] if self._launcher.endpoints else place

    async def _watch(self) -> None:
        await self.clock.sleep(_HANGS_SECONDS, (3,))
        raise BrokenError(f"it has not ended within {_HANGS_SECONDS:g} s")
