"""A run on one machine with too little memory: its programs, laid out for the memory limit and started on demand.

Training and evaluation share the memory, the cut of the rows, and values computed once.
"""

from __future__ import annotations

import itertools
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np

from dorylax.graph.compressed import as_int64
from dorylax.graph.dataset import Dataset
from dorylax.graph.mapped import mapping_of
from dorylax.machine import Limit, cores, resident_bytes
from dorylax.metrics.evaluation import Evaluated, evaluate, evaluation_of_rows
from dorylax.own_folder import OwnFolder
from dorylax.program.jaxpr.errors import SplitError
from dorylax.program.model.base import ModelParts, Tree
from dorylax.program.passes import PASSES, optimise
from dorylax.program.program import Program, trace
from dorylax.program.tasks.stage_calls import pad
from dorylax.program.tracing.spec import DataSpec
from dorylax.streaming.data import StreamData
from dorylax.streaming.executor import StreamedProgram
from dorylax.streaming.layout import INDEX, Layout
from dorylax.streaming.residency import lay_out, units_for
from dorylax.streaming.spare import give_back_freed_memory
from dorylax.streaming.units import Units
from dorylax.trainer.loop_state import LoopState
from dorylax.trainer.model_parts import further_inputs
from dorylax.trainer.runner import EpochRunner, Evaluate, RanEpoch
from dorylax.trainer.step.compiled import TrainingArrays
from dorylax.trainer.step.functions import StepFunctions
from dorylax.trainer.step.objective import Objective

# Memory of compiled and running stages, and the share of memory that allocators do not return.
_COMPILED = 192 << 20
_MIB = 1 << 20
_KEPT_BY_ALLOCATORS = 0.03


class Programs(NamedTuple):
    """Programs of an epoch, and of the exact forward pass of evaluations."""

    training: Program
    evaluation: Program


def programs(parts: ModelParts, spec: DataSpec, objective: Objective, *, hoists: bool) -> Programs:
    """Trace the programs of a model.

    Args:
        parts: The model.
        spec: Data specification for tracing.
        objective: Loss and metric.
        hoists: Whether unchanging values (Â·X) are computed once.

    Raises:
        SplitError: The model cannot be split.
    """
    passes = [name for name in PASSES if hoists or name != "hoist"]
    training = optimise(trace(parts, spec, loss=objective.rows, metrics=None), passes)
    return Programs(training, optimise(trace(parts, spec, loss=None, metrics=None), passes))


class Layouts(NamedTuple):
    """Layouts of the two programs."""

    training: Layout
    evaluation: Layout


class Plan(NamedTuple):
    """Plan of a streamed run."""

    programs: Programs
    units: Units
    layouts: Layouts


def plan_within(room: int, plan: Callable[[bool, bool], Plan], folder: Path) -> Plan:
    """Find a plan whose files fit on the disk.

    Unchanging values are computed once and read from a file in every epoch, as are the edges of labelled vertices if a sweep
    traverses only those. If such files do not fit, one or both are computed in every epoch instead.

    Args:
        room: Free bytes.
        plan: Makes a plan, given whether unchanging values are computed once and whether edges are kept separately.
        folder: Folder on the disk, for the error message.

    Raises:
        SplitError: As for `plan`; or no plan fits on the disk.
    """
    for hoists, keeps_apart in itertools.product((True, False), repeat=2):
        found = plan(hoists, keeps_apart)
        needed = found.layouts.training.scratch_bytes
        if needed <= room:
            return found
    raise SplitError(
        f"an epoch takes {needed / 2**30:,.1f} GiB of files in {folder}, whose disk has {room / 2**30:,.1f} GiB free: make "
        "room, or choose another disk (single.scratch)"
    )


def edges_from_labelled(data: Dataset) -> int | None:
    """Count the edges from training vertices; None: all train, or counting would need a pass over the edges."""
    mask = data.train_mask
    if not data.graph.symmetric or mask.all():
        return None
    return int(np.diff(as_int64(data.graph.incoming.offsets))[mask].sum())


def free_bytes(folder: Path) -> int:
    """Free bytes on the disk of a folder, which need not exist yet."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())
    return shutil.disk_usage(there).free


def lay_out_both(
    pair: Programs,
    units: Units,
    limit: int,
    base: int,
    *,
    symmetric: bool,
    mapped: frozenset[str],
    labelled_edges: int | None,
) -> Layouts:
    """Lay out both programs within a memory limit.

    Args:
        pair: The programs.
        units: The cut of the rows.
        limit: Memory limit of the process, in bytes.
        base: Memory of the process without the programs, in bytes.
        symmetric: Whether every edge comes with its reverse.
        mapped: Names of the inputs stored in files, `INDEX` included.
        labelled_edges: As for `lay_out`, for training.

    Raises:
        SplitError: A program cannot be streamed, or not within the limit; the message gives the minimum.
    """
    # One thread more than there are cores, since a thread waiting for XLA does not compute.
    options: Any = {"symmetric": symmetric, "mapped": mapped, "threads": cores() + 1}

    def within(memory: int) -> Layouts:
        budget = round(memory * (1 - _KEPT_BY_ALLOCATORS)) - base - _COMPILED
        # Values that training keeps between its sweeps stay in memory during an evaluation.
        least = lay_out(pair.evaluation, units, budget, **options).needs
        training = lay_out(pair.training, units, budget, beside=least, labelled_edges=labelled_edges, **options)
        return Layouts(training, lay_out(pair.evaluation, units, budget - training.lasting_bytes, **options))

    enough = limit
    while True:
        try:
            found = within(enough)
        except SplitError as error:
            if not error.missing:
                raise
            enough += math.ceil(error.missing / (1 - _KEPT_BY_ALLOCATORS))
            enough += -enough % _MIB
        else:
            break
    if enough > limit:
        raise SplitError(
            f"{pair.training.traced.name} takes {enough // _MIB} MiB on these data, of which the process itself takes "
            f"{(base + _COMPILED) // _MIB} MiB, and may have {limit // _MIB} MiB: raise the limit "
            f"(single.memory_limit={enough // _MIB}MiB), or make the model narrower"
        )
    return found


@final
class StreamedRun(EpochRunner):
    """Trains each epoch in sweeps over rows that it streams from disk; evaluates and predicts in the same way.

    Args:
        parts: The model.
        data: The data set, in the given order.
        spec: Data specification for tracing.
        functions: Step functions of the run's model and optimizer.
        seed: Seed of the run.
        limit: Memory limit of the process.
        scratch: Folder for its files; None: the system's temporary folder.

    Raises:
        SplitError: The model cannot be split.
        SplitError: The data or the model cannot be streamed, or not within the limit, or the disk is too small.
    """

    def __init__(
        self,
        parts: ModelParts,
        data: Dataset,
        spec: DataSpec,
        functions: StepFunctions,
        *,
        seed: int,
        limit: Limit,
        scratch: Path | None,
    ) -> None:
        self._parts, self._data, self._functions, self._seed = parts, data, functions, seed
        self._objective, self._scratch = functions.objective, scratch

        def plan(hoists: bool, keeps_apart: bool) -> Plan:
            pair = programs(parts, spec, self._objective, hoists=hoists)
            if any(one.reads_edges("ids", "places", "rows") for one in pair):
                _ = data.graph.edge_order  # made on first use, so that the estimate includes it
            units = units_for(as_int64(data.graph.incoming.offsets), *pair)
            data.release()
            give_back_freed_memory()  # left from compiling the step that did not fit
            how: Any = {"symmetric": data.graph.symmetric, "mapped": self._mapped()}
            how["labelled_edges"] = edges_from_labelled(data) if keeps_apart else None
            return Plan(pair, units, lay_out_both(pair, units, limit.bytes, resident_bytes(), **how))

        folder = Path(tempfile.gettempdir()) if scratch is None else scratch
        self._programs, self._units, self.layouts = plan_within(free_bytes(folder), plan, folder)
        self._folder: OwnFolder | None = None
        self._training: StreamedProgram | None = None
        self._evaluation: StreamedProgram | None = None

    @property
    def passes(self) -> tuple[str, ...]:
        """Passes of the training program."""
        return self._programs.training.passes

    @property
    def training(self) -> StreamedProgram:
        """The training program, started at first use.

        Raises:
            OSError: The disk is full, or a file cannot be read.
        """
        if self._training is None:
            self._training = StreamedProgram(self.layouts.training, self._stream_data(), self._place())
        return self._training

    @property
    def evaluation(self) -> StreamedProgram:
        """The evaluation program, started at first use.

        Raises:
            OSError: As for `training`.
        """
        if self._evaluation is None:
            self._evaluation = StreamedProgram(
                self.layouts.evaluation, self._stream_data(), self._place(), like=self._training
            )
        return self._evaluation

    @property
    def evaluate(self) -> Evaluate | None:
        """Streamed evaluation."""
        return self._evaluate

    def start(self, loop: LoopState, arrays: TrainingArrays | None) -> None:  # noqa: ARG002
        """Compute the values that are the same in every epoch."""
        begin = time.perf_counter()
        _ = self.training
        loop.spend("train", time.perf_counter() - begin)

    def run(self, loop: LoopState) -> RanEpoch:
        """See `EpochRunner`."""
        begin = time.perf_counter()
        carry = (loop.params, loop.opt_state, loop.state)
        found = self.training.step(loop.params, self._parts.streams, loop.state, seed=self._seed, epoch=loop.epochs)
        loss = np.asarray(found.loss)
        update, _ = self._functions.update.prepare(carry, loss, found.gradients, found.state)
        loop.params, loop.opt_state, loop.state = update(carry, loss, found.gradients, found.state)
        return RanEpoch(float(loss), time.perf_counter() - begin)

    def _evaluate(self, params: Tree, state: Tree) -> Evaluated:
        data, sums = self._data, self._objective.sums
        masks = np.stack([data.train_mask, data.val_mask, data.test_mask])
        evaluation = evaluation_of_rows(sums) if self._objective.measure.additive else None
        parts: list[Evaluated] = []
        pieces: list[Any] = []

        def take(unit: int, output: Any, first: int, last: int) -> None:
            if evaluation is None:
                pieces.append(jax.tree.map(np.array, output))
                return
            count, size = last - first, self._units.padded(unit)
            rows = jax.tree.map(lambda leaf: pad(leaf, 0, 1, count, size, zero=False), output)
            labels = pad(np.asarray(data.labels[first:last]), 0, 1, count, size, zero=False)
            parts.append(evaluation(rows, labels, pad(masks[:, first:last], 1, 1, count, size, zero=True)))

        self._forward(params, state, take)
        if evaluation is not None:
            return Evaluated.of(parts)
        whole = jax.tree.map(lambda *leaves: np.concatenate(leaves), *pieces)
        found, nan = jax.device_get(evaluate(sums, whole, np.asarray(data.labels), masks))
        return Evaluated(found, bool(nan))

    def outputs(self, params: Tree, state: Tree) -> Any:
        """Return the model's outputs for all vertices, floating ones as float32, mapped from unnamed files."""
        V = self._data.graph.num_vertices
        found: Any = None

        def take(_: int, output: Any, first: int, last: int) -> None:
            nonlocal found
            if found is None:
                found = jax.tree.map(lambda leaf: self._mapped_zeros((V, *leaf.shape[1:]), _shown(leaf.dtype)), output)
            for whole, leaf in zip(jax.tree.leaves(found), jax.tree.leaves(output), strict=True):
                whole[first:last] = leaf

        self._forward(params, state, take)
        return found

    def close(self) -> None:
        """Release files, memory and threads; later uses start again."""
        for program in (self._evaluation, self._training):
            if program is not None:
                program.close()
        self._training = self._evaluation = None
        if self._folder is not None:
            self._folder.remove()
            self._folder = None

    def _forward(self, params: Tree, state: Tree, take: Callable[[int, Any, int, int], None]) -> None:
        """Call `take` with each unit's output, as the model returns it, and the bounds of its rows."""
        traced = self._programs.evaluation.traced
        places = {var: k for k, var in enumerate(self.layouts.evaluation.outputs)}

        def hand_over(unit: int, rows: Sequence[np.ndarray]) -> None:
            leaves = [np.asarray(rows[places[var]]) for var in traced.step.jaxpr.outvars]
            take(unit, jax.tree.unflatten(traced.trees["output"], leaves), *self._units.bounds("vertex", unit))

        self.evaluation.forward(params, self._parts.streams, state, hand_over)

    def _stream_data(self) -> StreamData:
        data = self._data
        inputs = (data.features, *further_inputs(data, self._parts.keywords).values())
        return StreamData(data.graph, [np.asarray(array) for array in inputs], data.labels, data.train_mask)

    def _mapped(self) -> frozenset[str]:
        """Names of inputs stored in files."""
        data = self._data
        arrays = {"features": data.features, "labels": data.labels, INDEX: data.graph.incoming.neighbours}
        arrays |= further_inputs(data, self._parts.keywords)
        return frozenset(name for name, array in arrays.items() if mapping_of(array) is not None)

    def _mapped_zeros(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        with tempfile.TemporaryFile(dir=self._place()) as file:
            size = max(1, math.prod(shape) * np.dtype(dtype).itemsize)
            if hasattr(os, "posix_fallocate"):  # a full disk raises here; later, it would kill the process
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                os.truncate(file.fileno(), size)
            return np.asarray(np.memmap(file, dtype, "r+", shape=shape))

    def _place(self) -> Path:
        if self._folder is None:
            if self._scratch is not None:
                self._scratch.mkdir(parents=True, exist_ok=True)
            self._folder = OwnFolder(Path(tempfile.mkdtemp(prefix="dorylax-rows-", dir=self._scratch)))
        return self._folder.path


def _shown(dtype: Any) -> Any:
    return np.float32 if jnp.issubdtype(dtype, jnp.floating) else dtype
