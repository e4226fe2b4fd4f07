"""A pipeline that trains in one piece with the plain gradient, and writes down what it is told.

It has what makes a pipeline's checkpoints hard: memory besides the weights (`ghosts`, which change the gradient a little),
and intervals that are ahead, so that it can only be saved whole at a barrier.
"""

from __future__ import annotations

import functools
import sys
import types
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
import optax
import pytest

from dorylax.cost import DEFAULT_CLUSTER, Bill, Calls
from dorylax.pipeline.saved import Saved
from dorylax.pipeline.timeline import Span
from dorylax.program.jaxpr.errors import SplitError
from dorylax.trainer.loop_state import to_host
from dorylax.trainer.step.arrays import EpochInputs, TrainingArrays
from dorylax.trainer.step.gradient import PlainGradient

SECONDS = 0.25


class FakeEpoch(NamedTuple):
    epoch: int
    loss: float
    seconds: float
    params: Any
    opt_state: Any
    state: Any
    servers: tuple[Any, ...] = ()


@functools.cache
def compiled_step(structure, optimizer):
    def step(params, opt_state, state, ghosts, inputs):
        loss, gradients, state = PlainGradient(structure)(params, state, inputs)
        gradients = jax.tree.map(lambda gradient: gradient * (1 + ghosts), gradients)
        updates, opt_state = optimizer.update(gradients, opt_state, params)
        return loss, optax.apply_updates(params, updates), opt_state, state

    return jax.jit(step)


class FakePipeline:
    passes = ("prune", "fuse")
    made: ClassVar[list[FakePipeline]] = []

    def __init__(self, parts, data, optimizer, config, seed):
        self.data, self.config, self.calls = data, config, []
        self._parts, self._optimizer, self._seed = parts, optimizer, seed
        self._barriers = set()
        self._ahead = config.staleness or 0
        self._arrays = TrainingArrays.of(data)

    @classmethod
    def of(cls, parts, data, optimizer, config, *, loss, seed):
        if parts.name == "NormNet":
            raise SplitError("it mixes rows")
        cls.made.append(cls(parts, data, optimizer, config, seed))
        return cls.made[-1]

    def check_checkpoints(self, place):
        pass

    def start(self, params, opt_state, state, *, epoch=0, saved=None, trace=None):
        assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(params))
        self.calls.append(("start", epoch, saved is not None))
        self._carry, self._epoch, self.trace = (params, opt_state, state), epoch, trace
        self._ghosts = np.float32(0) if saved is None else saved.arrays["server 0/in.ghosts"]
        if saved is not None:
            assert saved.record["epochs"] == [epoch]
            self._ahead = 0 if saved.record["synchronous"] else self._ahead
            assert saved.arrays["empty"].shape == (0, 3)
        return self

    def barrier(self, epoch):
        self.calls.append(("barrier", epoch))
        self._barriers.add(epoch)

    def run_epoch(self):
        inputs = EpochInputs(self._parts.streams, (), self._arrays, np.uint32(self._seed), np.uint32(self._epoch))
        step = compiled_step(self._parts.structure, self._optimizer)
        loss, *carry = step(*self._carry, self._ghosts, inputs)
        self._carry = tuple(to_host(tree) for tree in carry)
        self._ghosts = np.float32(1e-3 * np.cos(float(loss)))
        if self.trace is not None:
            self.trace(Span("GA", "graph", 0, 0, self._epoch, SECONDS * self._epoch, SECONDS * (self._epoch + 1)))
        self._epoch += 1
        return FakeEpoch(self._epoch - 1, float(loss), SECONDS, *self._carry)

    def drain(self):
        self.calls.append(("drain", self._epoch))
        end = min(epoch for epoch in {*self._barriers, self._epoch + self._ahead} if epoch >= self._epoch)
        self._barriers.add(end)
        return end

    def synchronise(self):
        self.calls.append(("synchronise", self._epoch))
        self._ahead = 0
        return self._epoch

    def save(self):
        if self._ahead and self._epoch not in self._barriers:
            return None
        arrays = {"server 0/in.ghosts": np.asarray(self._ghosts), "empty": np.zeros((0, 3), bool)}
        return Saved(arrays, {"epochs": [self._epoch], "synchronous": self._ahead == 0})

    losses = ()

    @property
    def epochs_ahead(self):
        return 2 if self.config.gated else None

    def counters(self):
        return {"tasks": self._epoch}

    def rows_by_lag(self):
        return {"0": self._epoch}

    @property
    def seconds(self):
        return 3600.0 * self._epoch

    @property
    def prices(self):
        return DEFAULT_CLUSTER if self.config.clock == "virtual" else None

    def bill(self):
        if self.prices is None:
            return None
        return Bill.of(self.prices, seconds=self.seconds, graph_servers=2, parameter_servers=1, calls=Calls())

    def close(self):
        self.calls.append("close")


def install(monkeypatch: pytest.MonkeyPatch) -> list[FakePipeline]:
    """Puts it in the engine's place; the list will hold those that are made."""
    module: Any = types.ModuleType("dorylax.pipeline.engine")
    module.Pipeline = FakePipeline
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(FakePipeline, "made", [])
    return FakePipeline.made
