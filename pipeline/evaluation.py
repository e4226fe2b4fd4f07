"""Evaluation on the graph servers: an exact forward pass of one version, with separate buffers.

Training continues during an evaluation. The two share only the server's shard.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, final

import jax
import numpy as np

from dorylax.jax_internals import Var, is_literal, type_of
from dorylax.metrics.evaluation import Evaluated, RowSums, evaluation_of_rows
from dorylax.pipeline.driver import Driver
from dorylax.pipeline.graph_server import GraphServer
from dorylax.pipeline.host import Intervals
from dorylax.pipeline.interval_data import interval_data
from dorylax.pipeline.interval_pass import IntervalPass
from dorylax.pipeline.messages import Started
from dorylax.pipeline.parameters.records import Pulled
from dorylax.pipeline.plan import Plan
from dorylax.pipeline.prepare import Prepared
from dorylax.pipeline.recorder import Recorder
from dorylax.pipeline.staleness import Allowance, Gate
from dorylax.program.jaxpr.errors import SplitError
from dorylax.program.model.base import Tree
from dorylax.program.rows.types import Free, Rows
from dorylax.program.tasks.stage_calls import cut


def check_outputs(plan: Plan) -> None:
    """Check that every server can evaluate its part of a model alone.

    Args:
        plan: Plan of the forward pass.

    Raises:
        SplitError: An output is neither rows of vertices nor free of rows.
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
    """The intervals of one graph server during evaluations.

    Args:
        training: The graph server that trains on the same rows. Evaluations use its shard and its threads.
        prepared: The exact forward pass.
        values: The server's data by position of the input, see `interval_data`.
        labels: Labels of the server's rows, `[n, …]`.
        masks: Masks of the server's rows, bool `[M, n]`.
        sums: Metrics to compute.
    """

    def __init__(
        self,
        training: GraphServer,
        prepared: Prepared,
        values: Mapping[int, Any],
        *,
        labels: np.ndarray,
        masks: np.ndarray,
        sums: RowSums,
    ) -> None:
        shard, context = training.shard, training.context
        server = GraphServer(
            context._replace(plan=prepared.plan, copies_rows=False, role="evaluation"),
            shard,
            workers=training.workers,
            functions=prepared.functions(context.sizes, of_workers=True),
            controller=training.controller,  # unused, because no stage runs on workers
            autotuner=None,
            gate=Gate(Allowance(-1, 0, 0, None, 0), _unasked),  # every evaluation reads only its own rows
            recorder=Recorder({}, None),
        )
        super().__init__(server, interval_data(prepared, values, shard, context.sizes))
        traced = prepared.plan.program.traced
        self._prepared, self._trees = prepared, traced.trees
        self._outputs = list(traced.step.jaxpr.outvars)
        self._labels, self._masks = labels, masks
        self._driver: Driver | None = None
        self._evaluation = evaluation_of_rows(sums)

    def begin(self, streams: Tree, seed: int) -> None:
        """Set up evaluations, after `prepare`.

        Args:
            streams: Random streams of the model.
            seed: Seed of the run.
        """
        free = self.free_values()
        self._driver = Driver(self._prepared.plan, self._prepared.driver, free, streams=streams, seed=seed)

    async def evaluate(self, params: Tree, state: Tree, number: int) -> Evaluated:
        """Return the contribution of this server's rows, added in the order of intervals.

        Args:
            params: Parameters of the model.
            state: Other state of the model.
            number: Number of this evaluation: equal on all servers, and one more than in the previous evaluation.
        """
        found = []
        for interval, output in enumerate(await self._forward(params, state, number)):
            rows = slice(*self.server.shard.bounds[interval : interval + 2])
            found.append(self._evaluation(output, self._labels[rows], self._masks[:, rows]))
        return Evaluated.of(found)

    async def outputs(self, params: Tree, state: Tree, number: int) -> list[np.ndarray]:
        """Return the leaves of the model's output for this server's rows (first axis); arguments as for `evaluate`."""
        found = await self._forward(params, state, number)
        return [
            leaves[0] if not np.ndim(leaves[0]) else np.concatenate(leaves)
            for leaves in zip(*(jax.tree.leaves(output) for output in found), strict=True)
        ]

    async def _forward(self, params: Tree, state: Tree, number: int) -> list[Any]:
        """Return the output of each interval."""
        assert self._driver is not None
        values = self._driver.values(Pulled(number, params, state), number)
        weights = tuple(jax.tree.leaves(params))
        first = self.server.first_interval
        passes = [
            IntervalPass(interval, first + interval, number, number, weights, values, self._constants[interval])
            for interval in range(self.server.num_intervals)
        ]
        tasks = [
            self._clock.spawn(self._run_all(self._plan.epoch, current), name=f"evaluation {current.number}")
            for current in passes
        ]
        await asyncio.gather(*tasks)
        self.server.counts.take(number)  # discard the unused counts
        return [jax.tree.unflatten(self._trees["output"], self._rows(current)) for current in passes]

    def _rows(self, current: IntervalPass) -> list[Any]:
        """Return the leaves of an interval's output without padding."""
        first, last = self.server.bounds(current)
        types = self._plan.program.analysis.types
        leaves = []
        for atom in self._outputs:
            if not isinstance(atom, Var):
                leaves.append(np.asarray(atom.val, type_of(atom).dtype))
                continue
            value, found = np.asarray(current.value(atom)), types[atom]
            leaves.append(cut(value, found.axis, found.factor, 0, last - first) if isinstance(found, Rows) else value)
        return leaves


def _unasked(started: Started) -> None:
    raise AssertionError(f"an evaluation has no gate, and {started} came to it")
