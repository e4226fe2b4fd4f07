"""What one machine trains with: the data in their order in memory, and how a gradient is computed."""

from __future__ import annotations

import dataclasses
import warnings
from functools import cached_property
from typing import Any, Literal, final

import jax
import numpy as np

from dorylax.config.schema import SingleConfig
from dorylax.graph.dataset import Dataset
from dorylax.graph.sharded_data import ShardedData, shapes_of
from dorylax.graph.task_data import TaskData
from dorylax.program.jaxpr.errors import SplitError
from dorylax.program.model.base import ModelParts, Tree
from dorylax.program.tracing.spec import DataSpec
from dorylax.trainer.footprint.of_trainer import check_trainer
from dorylax.trainer.step.arrays import TrainingArrays
from dorylax.trainer.step.forward import Forward
from dorylax.trainer.step.functions import StepFunctions
from dorylax.trainer.step.gradient import Gradient
from dorylax.trainer.validate import Checked
from dorylax.trainer.vertex_order import effective_order, in_order, rows_of


@final
class OneMachine:
    """The step of one machine, and evaluations of a pipeline, share what is here; each is made when first asked for.

    Args:
        functions: of the model and its optimizer.
        parts: the model.
        data: as the user gave them; of shards, `order` and `forward` alone can be asked.
        single: how.
        checked: what is known of the model.
        evaluates_only: whether something else trains.

    Attributes:
        order_seconds: spent on putting the data in order, once `arrays` has been read.
    """

    def __init__(
        self,
        functions: StepFunctions,
        parts: ModelParts,
        data: Dataset | TaskData | ShardedData,
        single: SingleConfig,
        *,
        checked: Checked,
        evaluates_only: bool = False,
    ) -> None:
        self._functions = functions
        self._parts = parts
        self._data = data
        self._single = single
        self._edge_ids = checked.edge_ids
        self._row_outputs = checked.row_outputs
        self._evaluates_only = evaluates_only
        self._gradient: Gradient | None = None
        self.order_seconds = 0.0

    @cached_property
    def order(self) -> Literal["given", "community"]:
        """Of vertices in memory.

        Raises:
            OrderError: communities are asked for, and the model cannot be split.
        """
        return effective_order(self._single.order, shapes_of(self._data), self._by_rows)

    @property
    def _whole(self) -> Dataset | TaskData:
        if isinstance(self._data, ShardedData):
            raise TypeError(f"{self._data.folder} has the shards of {self._data.name}, and here are no arrays")
        return self._data

    def _by_rows(self) -> bool:
        if not self._row_outputs:  # of anything else nobody could say whose rows they are
            return False
        if self._evaluates_only:
            return self._functions.forward(self._parts, self._spec).by_rows
        return self.choose_gradient()[0].forward.by_rows

    @property
    def forward(self) -> Forward:
        """How the model is evaluated on `arrays`."""
        if not self._evaluates_only:
            return self.choose_gradient()[0].forward
        plain = self.order == "given"
        return self._functions.plain.forward if plain else self._functions.forward(self._parts, self._spec)

    @cached_property
    def arrays(self) -> TrainingArrays:
        """The data on the device, in order."""
        data, self.order_seconds = in_order(self._whole, self.order)
        return TrainingArrays.of(data, keywords=self._parts.keywords, edge_ids=self._edge_ids)

    def choose_gradient(self) -> tuple[Gradient, float]:
        """How gradients are computed, and the seconds spent on tracing now.

        Warns:
            UserWarning: the model cannot be split, and trains as plain jit.
        """
        if self._gradient is not None:
            return self._gradient, 0.0
        gradient: Gradient = self._functions.plain
        seconds = 0.0
        if self._single.optimize:
            try:
                gradient, seconds = self._functions.optimised(self._parts, self._spec, gathered=self._single.gathered)
            except SplitError as error:
                warnings.warn(
                    f"{self._parts.name} cannot be split into graph tasks and stages; it trains as plain jit, "
                    f"and a pipeline would refuse it: {error}",
                    UserWarning,
                    stacklevel=5,
                )
        self._gradient = gradient
        return gradient, seconds

    @property
    def _spec(self) -> DataSpec:
        """What a program for one machine is traced on."""
        data = shapes_of(self._data)
        assert not isinstance(data, TaskData)  # no program is made of other examples
        return dataclasses.replace(DataSpec.of(data, self._parts.keywords), edge_ids_fit=self._edge_ids)

    def outputs(self, params: Tree, state: Tree) -> Any:
        """The model's outputs, as float32: row i for row i of the data that were given."""
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
        """Before anything large is made; seconds spent on compiling what training will use.

        Raises:
            MemoryLimitError: training will need more memory than there is.
        """
        if self._evaluates_only or self._single.memory == "ignore" or "arrays" in self.__dict__:
            return 0.0
        gradient, _ = self.choose_gradient()
        community = self.order == "community"
        data = self._whole
        assert isinstance(data, Dataset)  # of other examples memory is ignored
        return check_trainer(self._functions, gradient, self._parts, data, community=community, edge_ids=self._edge_ids)
