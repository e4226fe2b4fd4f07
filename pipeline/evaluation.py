"""Evaluations where the data lie: one version's exact forward pass by the graph servers, in buffers of its own.

Intervals that train go on meanwhile; they and an evaluation share nothing but a server's shard.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np

from dorylax.clock import Workers
from dorylax.graph.shard import Shard
from dorylax.jax_internals import Var, is_literal, type_of
from dorylax.pipeline.context import HostContext
from dorylax.pipeline.driver import FreeValues
from dorylax.pipeline.gate import Gate
from dorylax.pipeline.graph_server import GraphServer
from dorylax.pipeline.host import Intervals
from dorylax.pipeline.interval_data import interval_data
from dorylax.pipeline.messages import Started
from dorylax.pipeline.parameters.records import Pulled
from dorylax.pipeline.plan import Plan
from dorylax.pipeline.prepare import PreparedPlan
from dorylax.pipeline.recorder import Recorder
from dorylax.pipeline.staleness import Allowance
from dorylax.pipeline.visit import Visit
from dorylax.program.jaxpr.errors import SplitError
from dorylax.program.model.base import Tree
from dorylax.program.rows.types import Free, Rows
from dorylax.serverless.controller import Controller
from dorylax.serverless.rows import cut

RowSums = Callable[[Any, Any, Any], Any]
"""`(output, labels, masks) -> [M, …]`: what is reported, as sums over the rows of each mask, bool `[M, n]`."""


class Evaluated(NamedTuple):
    """What the rows of some intervals contribute to an evaluation.

    Attributes:
        sums: of `RowSums`, `[M, …]`.
        nan: whether any output is NaN.
    """

    sums: np.ndarray
    nan: bool

    @classmethod
    def of(cls, parts: Sequence[Evaluated]) -> Evaluated:
        """All of them together, added in their order."""
        total = parts[0].sums
        for part in parts[1:]:
            total = total + part.sums
        return cls(total, any(part.nan for part in parts))


def check_outputs(plan: Plan) -> None:
    """Passes where servers can evaluate a model by themselves.

    Args:
        plan: of its forward pass.

    Raises:
        SplitError: it returns something that is neither rows of vertices nor free of rows.
    """
    traced, types = plan.program.traced, plan.program.analysis.types
    for output, atom in zip(traced.outputs, traced.step.jaxpr.outvars, strict=True):
        found = None if is_literal(atom) else types[atom]
        if not (found is None or isinstance(found, Free) or (isinstance(found, Rows) and found.space == "vertex")):
            raise SplitError(
                f"{traced.name} returns {output.name}, which has no row per vertex: hosts in other processes evaluate their "
                "own rows alone. Return rows of vertices, or train with pipeline.hosts=inline"
            )


@final
class EvaluationHost(Intervals):
    """The intervals of one graph server, as they evaluate.

    Args:
        context: what the training hosts share.
        prepared: the exact forward pass.
        shard: the server's part of the graph.
        values: the server's data, as of `interval_data`.
        labels: of the server's rows, `[n, …]`.
        masks: of its rows, bool `[M, n]`.
        sums: what is reported.
        workers: run its tasks, beside those of training.
        controller: of the server; it is asked for nothing, since no stage runs on workers.
    """

    def __init__(
        self,
        context: HostContext,
        prepared: PreparedPlan,
        shard: Shard,
        values: Mapping[int, Any],
        *,
        labels: np.ndarray,
        masks: np.ndarray,
        sums: RowSums,
        workers: Workers,
        controller: Controller,
    ) -> None:
        own = context._replace(plan=prepared.plan, copies_rows=False, role="evaluation")
        server = GraphServer(
            own,
            shard,
            workers=workers,
            functions=prepared.functions(context.sizes, of_workers=True),
            controller=controller,
            autotuner=None,
            gate=Gate(Allowance(-1, 0, 0, None, 0), _unasked),  # all rows are of the evaluation that reads them
            recorder=Recorder({}, None),
        )
        super().__init__(server, interval_data(prepared, values, shard, context.sizes))
        traced = prepared.plan.program.traced
        self._prepared, self._trees = prepared, traced.trees
        self._outputs = list(traced.step.jaxpr.outvars)
        self._labels, self._masks = labels, masks
        self._free: FreeValues | None = None
        self._judge = _judge(sums)

    def begin(self, streams: Tree, seed: int) -> None:
        """Gets ready for evaluations, after `prepare`.

        Args:
            streams: the model's random streams.
            seed: of the run.
        """
        free = self.free_values()
        functions = self._prepared.free
        constants = {var: free[var] for var in functions.constants}
        self._free = FreeValues(self._prepared.plan, functions, constants, streams=streams, seed=seed)

    async def evaluate(self, params: Tree, state: Tree, number: int) -> Evaluated:
        """What this server's rows contribute, added in the order of intervals.

        Args:
            params: parameters.
            state: the model's other state.
            number: of this evaluation, the same on all servers, one more than that of the one before.
        """
        found = []
        for interval, output in enumerate(await self._forward(params, state, number)):
            rows = slice(*self.server.shard.bounds[interval : interval + 2])
            sums, nan = jax.device_get(self._judge(output, self._labels[rows], self._masks[:, rows]))
            exact = np.issubdtype(sums.dtype, np.integer)  # rounded sums are added up in float64
            found.append(Evaluated(np.asarray(sums, None if exact else np.float64), bool(nan)))
        return Evaluated.of(found)

    async def outputs(self, params: Tree, state: Tree, number: int) -> list[np.ndarray]:
        """Leaves of the model's output for this server's rows, which lie along the first axis; arguments as above."""
        found = await self._forward(params, state, number)
        return [
            leaves[0] if not np.ndim(leaves[0]) else np.concatenate(leaves)
            for leaves in zip(*(jax.tree.leaves(output) for output in found), strict=True)
        ]

    async def _forward(self, params: Tree, state: Tree, number: int) -> list[Any]:
        """The output of each interval."""
        assert self._free is not None
        values = self._free.values(Pulled(number, params, state), number)
        weights = tuple(jax.tree.leaves(params))
        first = self.server.first_interval
        visits = [
            Visit(interval, first + interval, number, number, weights, values, self._constants[interval])
            for interval in range(self.server.num_intervals)
        ]
        tasks = [self._clock.spawn(self._walk(visit), name=f"evaluation {visit.number}") for visit in visits]
        await asyncio.gather(*tasks)
        self.server.counts.take(number)  # nobody asks for them
        return [jax.tree.unflatten(self._trees["output"], self._rows(visit)) for visit in visits]

    async def _walk(self, visit: Visit) -> None:
        for step in self._plan.epoch:
            await self._run(step, visit)
        await self.server.finish(visit)

    def _rows(self, visit: Visit) -> list[Any]:
        """The leaves of an interval's output, without padding."""
        first, last = self.server.bounds(visit)
        types = self._plan.program.analysis.types
        leaves = []
        for atom in self._outputs:
            if not isinstance(atom, Var):
                leaves.append(np.asarray(atom.val, type_of(atom).dtype))
                continue
            value, found = np.asarray(visit.value(atom)), types[atom]
            leaves.append(cut(value, found.axis, found.factor, 0, last - first) if isinstance(found, Rows) else value)
        return leaves


def _unasked(started: Started) -> None:
    raise AssertionError(f"an evaluation has no gate, and {started} came to it")


@functools.lru_cache(maxsize=8)
def _judge(sums: RowSums) -> Callable[[Any, Any, Any], tuple[Any, Any]]:
    """(output, labels, masks) -> the sums, and whether the output has a NaN; compiled once for all hosts of a process."""

    def judge(output: Any, labels: Any, masks: Any) -> tuple[Any, Any]:
        floats = [leaf for leaf in jax.tree.leaves(output) if jnp.issubdtype(leaf.dtype, jnp.floating)]
        nan = jnp.array([jnp.isnan(leaf).any() for leaf in floats]).any()
        return sums(output, labels, masks), nan

    return jax.jit(judge)
