"""One machine: its data in their order in memory, the way it computes gradients, and its epochs of one compiled step."""

from __future__ import annotations

import contextlib
import dataclasses
import time
import warnings
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, final

import jax
import numpy as np

from dorylax.config.schema import SingleConfig
from dorylax.errors import RunError
from dorylax.graph.dataset import Dataset
from dorylax.graph.many import chosen_graphs
from dorylax.graph.sharded_data import ShardedData, shapes_of
from dorylax.jax_internals import debugged
from dorylax.machine import Limit
from dorylax.program.jaxpr.errors import SplitError
from dorylax.program.model.base import ModelParts, Tree
from dorylax.program.tracing.spec import DataSpec
from dorylax.trainer.footprint.of_trainer import estimate_trainer
from dorylax.trainer.loop_state import LoopState
from dorylax.trainer.runner import EpochRunner, RanEpoch
from dorylax.trainer.step.compiled import EpochInputs, TrainingArrays
from dorylax.trainer.step.functions import StepFunctions
from dorylax.trainer.step.gradient import Forward, Gradient
from dorylax.trainer.streamed import StreamedRun
from dorylax.trainer.validate import Checked
from dorylax.trainer.vertex_order import effective_order, in_order, rows_of


@final
class OneMachine:
    """State that one machine's step shares with evaluations of a pipeline; each part is made at its first use.

    Args:
        functions: Step functions of the model and its optimizer.
        parts: The model.
        data: The user's data; shards support only `order` and `forward`.
        single: Settings of one machine's step.
        checked: Results of the model check.
        seed: Seed of the run.
        evaluates_only: Whether something else trains.
        scratch: Folder for the files of a streamed run, unless the settings name one.

    Attributes:
        order_seconds: Seconds spent on reordering the data, once `arrays` has been read.
    """

    def __init__(
        self,
        functions: StepFunctions,
        parts: ModelParts,
        data: Dataset | ShardedData,
        single: SingleConfig,
        *,
        checked: Checked,
        seed: int,
        evaluates_only: bool = False,
        scratch: Path | None = None,
    ) -> None:
        self._functions = functions
        self._parts = parts
        self._data = data
        self._single = single
        self._edge_ids = checked.edge_ids
        self._row_outputs = checked.row_outputs
        self._evaluates_only = evaluates_only
        self._seed = seed
        self._scratch = scratch if single.scratch is None else Path(single.scratch)
        self._gradient: Gradient | None = None
        self._checked_seconds = 0.0
        self._refusal = ""
        self._decided = False
        self._streamed: StreamedRun | None = None
        self.order_seconds = 0.0

    @property
    def order(self) -> Literal["given", "community"]:
        """Order of vertices in memory.

        Raises:
            InputError: The settings ask for communities, and the model cannot be split.
        """
        return "given" if self.streamed is not None else self._order_in_memory

    @property
    def streamed(self) -> StreamedRun | None:
        """The streamed run, which trains and evaluates if the data do not fit into memory; None if not streamed."""
        if not self._decided:
            self.decide()
        return self._streamed

    def decide(self) -> None:
        """Decide from the present memory whether the run streams; the decision may change until the run begins."""
        self._decided = True
        data, limit = self._data, self._single.limit
        ignores = self._evaluates_only or self._single.memory == "ignore"
        if ignores or not isinstance(data, Dataset) or self._streamed is not None or "arrays" in self.__dict__:
            return
        self._refusal = ""
        if self._single.memory == "stream":
            self._stream(data, limit, "single.memory=stream: the run")
        elif limit is not None:
            self._stream_if_large(data, limit)

    def _stream_if_large(self, data: Dataset, limit: Limit) -> None:
        gradient, _ = self.choose_gradient()
        community = self._order_in_memory == "community"
        found, self._checked_seconds = estimate_trainer(
            self._functions, gradient, self._parts, data, limit, community=community, edge_ids=self._edge_ids
        )
        if found is not None and not found.fits:
            self._stream(data, limit, f"{found.refusal()}. It", "either")

    def _stream(self, data: Dataset, limit: Limit | None, otherwise: str, *more: str) -> None:
        """Make the run stream; if that is impossible, note a refusal that starts with `otherwise` and gives the reason."""
        try:
            if self._single.only_in_memory:
                raise SplitError(self._single.only_in_memory)
            if not self._row_outputs:
                raise SplitError(f"{self._parts.name} returns something that has no row per vertex")
            if limit is None:
                raise SplitError("this system does not say how much memory there is: give single.memory_limit")
            self._streamed = StreamedRun(
                self._parts, data, self._spec, self._functions, seed=self._seed, limit=limit, scratch=self._scratch
            )
        except SplitError as error:
            self._refusal = f"{' '.join([otherwise, 'cannot be streamed from disk', *more])}: {error}"

    @cached_property
    def _order_in_memory(self) -> Literal["given", "community"]:
        """Order of vertices if all data are in memory."""
        return effective_order(self._single.order, shapes_of(self._data), self._by_rows)

    @property
    def _whole(self) -> Dataset:
        if isinstance(self._data, ShardedData):
            raise TypeError(f"{self._data.folder} has the shards of {self._data.name}, and here are no arrays")
        return self._data

    def _by_rows(self) -> bool:
        if not self._row_outputs:  # outputs without a row per vertex cannot be put back in order
            return False
        if self._evaluates_only:
            return self._functions.forward(self._parts, self._spec).by_rows
        return self.choose_gradient()[0].forward.by_rows

    @property
    def forward(self) -> Forward:
        """Forward pass for evaluations on `arrays`."""
        if not self._evaluates_only:
            return self.choose_gradient()[0].forward
        plain = self.order == "given"
        return self._functions.plain.forward if plain else self._functions.forward(self._parts, self._spec)

    @cached_property
    def arrays(self) -> TrainingArrays:
        """The data on the device, in order."""
        data, self.order_seconds = in_order(self._whole, self.order)
        return TrainingArrays.of(data, keywords=self._parts.keywords, edge_ids=self._edge_ids)

    @property
    def training_arrays(self) -> TrainingArrays:
        """`arrays` restricted to the training graphs if examples are graphs, so that others do not influence the loss."""
        data = self._whole
        if data.examples == "vertices" or data.graph.graph_of is None or data.train_mask.all():
            return self.arrays
        trained = chosen_graphs(data, data.train_mask)
        return TrainingArrays.of(trained, keywords=self._parts.keywords, edge_ids=self._edge_ids)

    def choose_gradient(self) -> tuple[Gradient, float]:
        """Return the gradient function, and the seconds spent on tracing now.

        Warns:
            UserWarning: The model cannot be split, and trains as plain jit.
        """
        if self._gradient is not None:
            return self._gradient, 0.0
        gradient: Gradient = self._functions.plain
        seconds = 0.0
        if self._single.optimize and not debugged("jax_disable_jit"):  # with it, the user's code must run
            try:
                gradient, seconds = self._functions.optimised(self._parts, self._spec, gathered=self._single.gathered)
            except SplitError as error:
                warnings.warn(
                    f"{self._parts.name} trains as plain jit if it fits into memory: {error}"
                    if error.side_effect
                    else f"{self._parts.name} cannot be split into graph tasks and stages; it trains as plain jit, "
                    f"and a pipeline would refuse it: {error}",
                    UserWarning,
                    stacklevel=5,
                )
        self._gradient = gradient
        return gradient, seconds

    @property
    def _spec(self) -> DataSpec:
        """The data specification for tracing a program for one machine."""
        data = shapes_of(self._data)
        return dataclasses.replace(DataSpec.of(data, self._parts.keywords), edge_ids_fit=self._edge_ids)

    def outputs(self, params: Tree, state: Tree) -> Any:
        """Return the model's outputs, as float32: row i for row i of the given data."""
        if self.streamed is not None:
            with contextlib.closing(self.streamed) as run:
                return run.outputs(params, state)
        streams, arrays = self._parts.streams, self.arrays
        if self.order == "given":
            forward, kept = self._functions.plain.forward, ()
        else:
            forward = self.forward
            kept = () if self._evaluates_only else self.choose_gradient()[0].keep(arrays).arrays
        inputs = (streams, forward.kept_of(kept), arrays)
        predict, _ = self._functions.prediction(forward).prepare(params, state, inputs)
        output = jax.tree.map(np.array, predict(params, state, inputs))
        if self.order == "given":
            return output
        rows = rows_of(self._whole, in_order(self._whole, self.order)[0])
        return jax.tree.map(lambda leaf: leaf[rows], output)

    def check_memory(self) -> float:
        """Check the memory before large arrays are made; return the seconds spent on compiling functions for training.

        Raises:
            RunError: Training will need more memory than there is.
        """
        if "arrays" in self.__dict__:
            return 0.0
        if self.streamed is None and self._refusal:
            raise RunError(self._refusal)
        seconds, self._checked_seconds = self._checked_seconds, 0.0
        return seconds


@final
class SingleRunner(EpochRunner):
    """Runs each epoch as one jitted function.

    Args:
        functions: Step functions of the run's model and optimizer.
        gradient: Gradient function.
        streams: The model's random streams.
        seed: Seed of the run.
        trace_seconds: Seconds spent on tracing the gradient, to be added to the timings.
        redraw: Returns the model inputs that change in an epoch, as name → array.
    """

    def __init__(
        self,
        functions: StepFunctions,
        gradient: Gradient,
        streams: Tree,
        *,
        seed: int,
        trace_seconds: float,
        redraw: Callable[[int], Mapping[str, np.ndarray]],
    ) -> None:
        self._functions = functions
        self._gradient = gradient
        self._streams = streams
        self._seed = seed
        self._trace_seconds = trace_seconds
        self._redraw = redraw
        self._step: Any = None
        self._inputs: Any = None

    @property
    def passes(self) -> tuple[str, ...] | None:
        """See `EpochRunner`."""
        return self._gradient.passes

    @property
    def kept(self) -> tuple[Any, ...]:
        """See `EpochRunner`."""
        return () if self._inputs is None else self._inputs.kept

    @property
    def reads_features(self) -> bool:
        """False if epochs read only values computed once from the features."""
        return self._gradient.reads_features

    def start(self, loop: LoopState, arrays: TrainingArrays | None) -> None:
        """Compile the step, and compute the values that are the same in every epoch."""
        assert arrays is not None
        kept = self._gradient.keep(arrays)
        self._inputs = EpochInputs(self._streams, kept.arrays, arrays, np.uint32(self._seed), np.uint32(0))
        carry = (loop.params, loop.opt_state, loop.state)
        self._step, step_seconds = self._functions.step(self._gradient).prepare(carry, self._inputs)
        loop.spend("compile", self._trace_seconds + kept.compile_seconds + step_seconds)
        loop.spend("train", kept.seconds)

    def run(self, loop: LoopState) -> RanEpoch:
        """See `EpochRunner`."""
        begin = time.perf_counter()
        carry = (loop.params, loop.opt_state, loop.state)
        inputs = self._inputs._replace(epoch=np.uint32(loop.epochs))
        if drawn := self._redraw(loop.epochs):
            inputs = inputs._replace(
                arrays=inputs.arrays._replace(named=inputs.arrays.named | jax.device_put(dict(drawn)))
            )
        carry, device_loss = self._step(carry, inputs)
        loop.params, loop.opt_state, loop.state = carry
        loss = float(device_loss)  # blocks until the whole step is done
        return RanEpoch(loss, time.perf_counter() - begin)
