"""The reference executor: every task in order, every interval in order, in one process.

What a pipeline does with servers and workers is here a loop; no other way to run a program may give other numbers.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import jax
import numpy as np

from dorylax.graph.compressed import CompressedGraph, as_int64
from dorylax.jax_internals import ClosedJaxpr, Var, eval_jaxpr, is_literal, size_at, type_of
from dorylax.program.artefact import stage_file
from dorylax.program.artefact.export import StageSet
from dorylax.program.artefact.stage_file import Stage
from dorylax.program.jaxpr.rewrite import instantiate
from dorylax.program.jaxpr.symbols import SYMBOLS, Space
from dorylax.program.model.base import Tree
from dorylax.program.rows.types import Rows, RowType, Summed
from dorylax.program.tasks.split_model import SplitModel
from dorylax.program.tasks.task import Task
from dorylax.program.tracing.arguments import RunData, StepResult, data_values, step_values, unpack, unpack_output

StageFunction = Callable[..., list[Any]]
Compile = Callable[[ClosedJaxpr, dict[str, int]], StageFunction]
"""`(symbolic function of a task, numbers of rows) -> function of arrays`."""


def interpret(closed: ClosedJaxpr, sizes: dict[str, int]) -> StageFunction:
    """Runs a task operation by operation; nothing is compiled for the task as a whole."""
    concrete = instantiate(closed, sizes)
    return lambda *values: eval_jaxpr(concrete.jaxpr, concrete.consts, *values)


def compile_whole(closed: ClosedJaxpr, sizes: dict[str, int]) -> StageFunction:
    """Compiles a task as one function."""
    return jax.jit(interpret(closed, sizes))


def artefact_compiler(program: SplitModel, stage_set: StageSet, others: Compile | None = None) -> Compile:
    """Lets a `ReferenceExecutor` run the stages through their artefacts.

    Args:
        program: the program that the executor runs.
        stage_set: its stages.
        others: what makes the functions of other tasks (default: `compile_whole`).
    """
    make_other = compile_whole if others is None else others
    task_of = {program.interfaces[k].writes[0]: k for k in stage_set.stages}
    loaded: dict[str, Stage] = {}

    def compile_task(closed: ClosedJaxpr, sizes: dict[str, int]) -> StageFunction:
        index = task_of.get(closed.jaxpr.outvars[0])
        if index is None:
            return make_other(closed, sizes)
        reference = stage_set.stages[index]
        sha256 = reference.sha256
        if sha256 not in loaded:
            loaded[sha256] = stage_file.load(stage_set.artefacts[sha256], sha256)
        stage = loaded[sha256]
        (rows,) = sizes.values()
        return lambda *values: reference.call(stage, values, rows)

    return compile_task


@final
@dataclasses.dataclass(frozen=True)
class Intervals:
    """A cut of the rows of both spaces.

    Attributes:
        bounds: interval k is rows `bounds[space][k]:bounds[space][k + 1]`.
    """

    bounds: dict[Space, tuple[int, ...]]

    @classmethod
    def of(cls, graph: CompressedGraph, vertex_bounds: Sequence[int]) -> Intervals:
        """Those between the given vertices: `[0, 10, 25, V]` makes three.

        Raises:
            ValueError: the bounds do not ascend from 0 to V.
        """
        bounds = tuple(int(bound) for bound in vertex_bounds)
        if len(bounds) < 2 or bounds[0] != 0 or bounds[-1] != graph.num_vertices or list(bounds) != sorted(bounds):
            raise ValueError(f"bounds of intervals must ascend from 0 to {graph.num_vertices}, got {list(bounds)}")
        offsets = as_int64(graph.incoming.offsets)
        return cls({"vertex": bounds, "edge": tuple(int(offsets[bound]) for bound in bounds)})

    @classmethod
    def even(cls, graph: CompressedGraph, count: int) -> Intervals:
        """`count` intervals of as many vertices each as the division allows."""
        return cls.of(graph, [int(bound) for bound in np.linspace(0, graph.num_vertices, count + 1).round()])

    def __len__(self) -> int:
        return len(self.bounds["vertex"]) - 1

    def largest(self, space: Space) -> int:
        """Rows of the largest interval: what all calls of a stage are padded to."""
        return int(np.diff(self.bounds[space]).max())


@final
class ReferenceExecutor:
    """Runs a program on data, interval by interval.

    Args:
        program: the program.
        data: what it runs on.
        intervals: the cut of the rows.
        compile: how a task's function is made; `compile_whole` (default), `interpret`, or one that calls stage artefacts.
        rows: rows of each call of a stage, to which intervals are padded; by default those of the largest interval.

    Raises:
        ValueError: the data are not as the model was traced.
    """

    def __init__(
        self,
        program: SplitModel,
        data: RunData,
        intervals: Intervals,
        *,
        compile: Compile = compile_whole,
        rows: Mapping[Space, int] | None = None,
    ) -> None:
        self._program = program
        self._graph = data.graph
        self._intervals = intervals
        self._sizes = {"n": int(data.graph.num_vertices), "e": int(data.graph.num_edges)}
        self._compile = compile
        self._rows = rows or {space: intervals.largest(space) for space in SYMBOLS}
        self._functions: dict[int, StageFunction] = {}
        inputs = program.traced.step.jaxpr.invars
        self._kept = {inputs[k]: value for k, value in data_values(program.traced, data).items()}
        for k, task in enumerate(program.tasks):
            if task.when == "once":
                self._run(k, task, self._kept)

    def step(self, params: Tree, streams: Tree, state: Tree, *, seed: int = 0, epoch: int = 0) -> StepResult:
        """One epoch: loss, metrics, gradients and new state.

        Args:
            params: parameters, as the model was traced.
            streams: its random streams (`ModelParts.streams`), as before any epoch.
            state: its other state.
            seed: of the run.
            epoch: number of the epoch.
        """
        return unpack(self._program.traced, self._outputs(params, streams, state, seed, epoch), state, self._graph)

    def output(self, params: Tree, streams: Tree, state: Tree) -> Any:
        """The model's output, of a program traced without a loss."""
        return unpack_output(self._program.traced, self._outputs(params, streams, state, 0, 0), self._graph)

    def _outputs(self, params: Tree, streams: Tree, state: Tree, seed: int, epoch: int) -> list[Any]:
        jaxpr = self._program.traced.step.jaxpr
        values = dict(self._kept)
        changing = step_values(self._program.traced, params, streams, state, seed=seed, epoch=epoch)
        values.update({jaxpr.invars[k]: value for k, value in changing.items()})
        for k, task in enumerate(self._program.tasks):
            if task.when == "epoch":
                self._run(k, task, values)
        return [atom.val if is_literal(atom) else values[atom] for atom in jaxpr.outvars]

    def _run(self, index: int, task: Task, values: dict[Var, Any]) -> None:
        interface = self._program.interfaces[index]
        operands = [values[var] for var in interface.reads]
        if task.kind != "stage":
            results = self._function(index, self._sizes)(*operands)
        else:
            results = self._stage(index, task, operands)
        values.update(zip(interface.writes, results, strict=True))

    def _stage(self, index: int, task: Task, operands: list[Any]) -> list[Any]:
        """All intervals, each padded to the same number of rows, so that the stage is compiled once."""
        assert task.space is not None
        interface, analysis = self._program.interfaces[index], self._program.analysis
        bounds, size = self._intervals.bounds[task.space], self._rows[task.space]
        if bounds[-1] == 0:  # a graph without edges
            empty = {SYMBOLS[task.space]: 0}
            shapes = [[int(size_at(dim, empty)) for dim in type_of(var).shape] for var in interface.writes]
            return [np.zeros(shape, type_of(var).dtype) for shape, var in zip(shapes, interface.writes, strict=True)]
        function = self._function(index, {SYMBOLS[task.space]: size})
        parts: list[list[Any]] = []
        for first, last in itertools.pairwise(bounds):
            # Padding repeats a real row (zeros could be NaN in a derivative) with a zero cotangent: sums do not see it.
            places = np.minimum(np.arange(first, first + size), max(last - 1, 0))
            padding = np.arange(size) >= last - first
            given = []
            for var, value in zip(interface.reads, operands, strict=True):
                row_type = analysis.types[var]
                if isinstance(row_type, Rows):
                    given.append(_cut(value, row_type, places, padding if var in analysis.weighted else None))
                else:
                    given.append(value)
            results = zip(interface.writes, function(*given), strict=True)
            parts.append([_head(result, analysis.types[var], last - first) for var, result in results])
        pieces = zip(interface.writes, zip(*parts, strict=True), strict=True)
        return [_together(list(results), analysis.types[var]) for var, results in pieces]

    def _function(self, index: int, sizes: dict[str, int]) -> StageFunction:
        if index not in self._functions:
            self._functions[index] = self._compile(self._program.function_of(index), sizes)
        return self._functions[index]


# In NumPy: slices of every size would each be compiled by JAX.


def _cut(value: Any, row_type: Rows, places: np.ndarray, zero: np.ndarray | None) -> np.ndarray:
    axis, factor = row_type.axis, row_type.factor
    shape = value.shape
    whole = np.asarray(value).reshape(*shape[:axis], -1, factor, *shape[axis + 1 :])
    rows = np.take(whole, places, axis=axis)
    if zero is not None:
        rows[(slice(None),) * axis + (zero,)] = 0
    return rows.reshape(*shape[:axis], places.shape[0] * factor, *shape[axis + 1 :])


def _head(value: Any, row_type: RowType, count: int) -> Any:
    """Without the padding."""
    if not isinstance(row_type, Rows):
        return value
    return np.asarray(value)[(slice(None),) * row_type.axis + (slice(0, count * row_type.factor),)]


def _together(pieces: list[Any], row_type: RowType) -> Any:
    """The value for all rows, from that of each interval."""
    if isinstance(row_type, Rows):
        return np.concatenate(pieces, axis=row_type.axis)
    # An operation of both (`cond`, `scan`) may give a value without rows beside its rows: the same in every interval.
    return sum(pieces[1:], start=pieces[0]) if isinstance(row_type, Summed) else pieces[0]
