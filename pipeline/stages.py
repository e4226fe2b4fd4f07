"""Stages on the rows of one interval, compiled once for a fixed number of rows. Intervals are padded to that number."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, final

import jax
import numpy as np

from dorylax.abstract_array import abstract_array
from dorylax.graph.shard import AnyShard
from dorylax.graph.sharded_data import ShardEntry
from dorylax.jax_internals import Var, is_key, jaxpr_as_fun, jit, size_at, type_of
from dorylax.pipeline.plan import Plan
from dorylax.program.jaxpr.flops import equation_flops, may_go_on, product_flops
from dorylax.program.jaxpr.rewrite import instantiate
from dorylax.program.jaxpr.symbols import SYMBOLS, value_bytes
from dorylax.program.tasks.steps import Step

StageFunction = Callable[..., Sequence[Any]]


@final
class StageSizes:
    """Numbers of rows per call: `vertices` for all intervals, `edges` for a chunk of in-edges."""

    def __init__(self, vertices: int, edges: int) -> None:
        self.vertices, self.edges = vertices, edges

    def of(self, step: Step) -> int:
        """Return the number of rows per call of a stage."""
        return self.vertices if step.space == "vertex" else self.edges


def stage_sizes(pieces: Sequence[AnyShard | ShardEntry], edge_chunk: int) -> StageSizes:
    """Return the rows per call of a stage: vertices of the largest interval, and edges of a chunk no larger than needed.

    The number of edges is rounded up by at most a quarter, so that partitions with other seeds reuse compiled functions.
    """
    vertices = max(last - first for shard in pieces for first, last in itertools.pairwise(shard.bounds))
    edges = max(last - first for shard in pieces for first, last in itertools.pairwise(shard.edge_bounds))
    grain = 1 << max(0, edges.bit_length() - 3)
    return StageSizes(vertices, max(1, min(edge_chunk, -(-edges // grain) * grain)))


def compiled(plan: Plan, step: Step, rows: int) -> StageFunction:
    """Return the jitted function of a stage for this number of rows, or of a driver task (for which `rows` is unused).

    A stage's function is called once, on ones. No epoch then includes compilation, and no two threads compile the same
    function.
    """
    if step.space is None:
        return jit(jaxpr_as_fun(plan.program.function_of(step.index)))
    at = {SYMBOLS[step.space]: rows}
    function = jit(jaxpr_as_fun(instantiate(plan.program.function_of(step.index), at)))
    operands = []
    for var in step.reads:
        aval = type_of(var)
        operands.append(np.ones([int(size_at(dim, at)) for dim in aval.shape], aval.dtype))
    with jax.debug_nans(False):  # ones may give NaN although the data do not
        jax.block_until_ready(function(*operands))
    return function


def abstract_functions(plan: Plan, sizes: StageSizes) -> dict[int, StageFunction]:
    """Return functions of stages and driver tasks by task index that ignore their arguments and return abstract arrays."""
    found: dict[int, StageFunction] = {}
    for step in plan.steps:
        if step.kind in ("stage", "driver"):
            at = {} if step.space is None else {SYMBOLS[step.space]: sizes.of(step)}
            results = [abstract_like(var, at) for var in step.writes]
            found[step.index] = lambda *_, results=results: results
    return found


def abstract_like(var: Var, at: Mapping[str, int]) -> np.ndarray:
    """Return an abstract array with the shape of a value; for random keys, with the shape of their data.

    Args:
        var: The value.
        at: Numbers of rows by symbol.
    """
    aval = type_of(var)
    shape = [int(size_at(dim, at)) for dim in aval.shape]
    return abstract_array((*shape, 2), np.uint32) if is_key(aval) else abstract_array(shape, aval.dtype)


class StageCost(NamedTuple):
    """Cost of one call of a stage.

    Attributes:
        flops: Number of operations.
        bytes_in: Number of bytes read.
        bytes_out: Number of bytes written.
        row_bytes_in: Number of bytes read from rows, included in `bytes_in`.
        requests: Number of transfers of a worker that runs the stage.
        elementwise: Number of operations outside matrix products, included in `flops`.
    """

    flops: int
    bytes_in: int
    bytes_out: int
    row_bytes_in: int
    requests: int = 0
    elementwise: int = 0


@functools.lru_cache(maxsize=4096)
def stage_cost(step: Step, rows: int) -> StageCost:
    """Return the estimated cost of a stage on a number of vertices or edges."""
    assert step.space is not None
    at = {SYMBOLS[step.space]: rows}
    return StageCost(
        sum(equation_flops(equation, at) for equation in step.equations),
        sum(value_bytes(var.aval, at) for var in step.reads),
        sum(value_bytes(var.aval, at) for var in step.writes),
        sum(
            value_bytes(var.aval, at)
            for var, source in zip(step.reads, step.sources, strict=True)
            if source.source == "rows"
        ),
        _requests(step),
        sum(equation_flops(equation, at) - product_flops(equation, at) for equation in step.equations),
    )


@functools.lru_cache(maxsize=4096)
def stage_effort(step: Step, rows: int) -> int | None:
    """Return the operations plus bytes of a call on `rows` rows including padding; None if unknown (`Workers.run`)."""
    if any(may_go_on(equation) for equation in step.equations):
        return None
    cost = stage_cost(step, rows)
    return cost.flops + cost.bytes_in + cost.bytes_out


def _requests(step: Step) -> int:
    """Return a worker's number of transfers: rows, values without rows, results for either server; weights are cached."""
    read = {source.source for source in step.sources} - {"weights"}
    return len(read) + len({target.target == "sums" for target in step.targets})
