"""The gradient of an epoch: by the optimised program, or as JAX differentiates the model.

Both give the same up to rounding. The plain one is the reference, and serves models that cannot be split; the program's
computes what is the same in every epoch once, and gathers rows where they are narrowest.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, final, runtime_checkable

import jax

from dorylax.program.model.base import ModelParts, ModelStructure, Tree
from dorylax.program.model.epoch_rng import epoch_rng
from dorylax.program.model.loss import RowFunction, cross_entropy, masked_loss
from dorylax.program.passes import optimise
from dorylax.program.program import trace
from dorylax.program.single.function import ProgramFunction
from dorylax.program.single.narrow import Gathered
from dorylax.program.tracing.spec import DataSpec
from dorylax.trainer.step.arrays import EpochInputs, TrainingArrays
from dorylax.trainer.step.compiled import Compiled
from dorylax.trainer.step.forward import Forward, PlainForward, forward_of


class Kept(NamedTuple):
    """What is the same in every epoch.

    Attributes:
        arrays: an argument of the gradient.
        compile_seconds: spent on compiling what makes them.
        seconds: spent on making them.
    """

    arrays: tuple[Any, ...] = ()
    compile_seconds: float = 0.0
    seconds: float = 0.0


@runtime_checkable
class Gradient(Protocol):
    """How loss and gradients are computed; compared and hashed by identity.

    Attributes:
        passes: of the program; None where there is none.
        reads_features: whether an epoch reads the features, or only what is kept of them.
        forward: how a model that trains so is evaluated.
    """

    passes: tuple[str, ...] | None
    reads_features: bool
    forward: Forward

    def prepare(self, arrays: TrainingArrays) -> tuple[Any, tuple[Any, ...], float]:
        """Compiles what `keep` runs.

        Args:
            arrays: the data set, or its shapes.

        Returns:
            The executable, None where there is nothing to run; the shapes of what `keep` will give; seconds spent now.
        """
        ...

    def keep(self, arrays: TrainingArrays) -> Kept:
        """Computes what is the same in every epoch, on the device."""
        ...

    def __call__(self, params: Tree, state: Tree, inputs: EpochInputs) -> tuple[Any, Tree, Tree]:
        """Loss before the update, gradients and new state: a pure function, to be jitted."""
        ...

    def loss(self, params: Tree, state: Tree, inputs: EpochInputs) -> Any:
        """The loss alone, which may be differentiated once: for optimizers that search along a line."""
        ...


@final
class PlainGradient:
    """`jax.value_and_grad` of the whole model.

    Args:
        structure: of the model.
        loss: `(output, labels) -> [V]`.
    """

    passes: tuple[str, ...] | None = None
    reads_features = True

    def __init__(self, structure: ModelStructure, loss: RowFunction = cross_entropy) -> None:
        self._structure = structure
        self._loss = loss
        self.forward: Forward = PlainForward(structure)

    def prepare(self, arrays: TrainingArrays) -> tuple[Any, tuple[Any, ...], float]:  # noqa: ARG002
        """Nothing is kept."""
        return None, (), 0.0

    def keep(self, arrays: TrainingArrays) -> Kept:  # noqa: ARG002
        """Nothing is kept."""
        return Kept()

    def __call__(self, params: Tree, state: Tree, inputs: EpochInputs) -> tuple[Any, Tree, Tree]:
        """See `Gradient`."""
        loss_of = self._loss_of(state, inputs)
        (loss, new_state), gradients = jax.value_and_grad(loss_of, has_aux=True)(params)
        return loss, gradients, new_state

    def loss(self, params: Tree, state: Tree, inputs: EpochInputs) -> Any:
        """See `Gradient`."""
        return self._loss_of(state, inputs)(params)[0]

    def _loss_of(self, state: Tree, inputs: EpochInputs) -> Callable[[Tree], tuple[Any, Tree]]:
        """The loss of an epoch as a function of the parameters, with the model's new state."""
        streams, arrays = epoch_rng(inputs.streams, inputs.seed, inputs.epoch), inputs.arrays

        def loss_of(params: Tree) -> tuple[Any, Tree]:
            rows = (arrays.graph, arrays.features)
            output, new_state = self._structure.apply_train(params, streams, state, *rows, **arrays.named)
            return masked_loss(output, arrays.labels, arrays.masks[0], self._loss), new_state

        return loss_of


@final
class ProgramGradient:
    """The step of an optimised program.

    Args:
        function: the program's.
        passes: the program's.
        forward: how the model is evaluated.
    """

    def __init__(self, function: ProgramFunction, passes: tuple[str, ...], forward: Forward) -> None:
        self.passes: tuple[str, ...] | None = passes
        self.reads_features = function.reads_rows
        self.forward = forward
        self._function = function
        self._keep = Compiled(function.prepare)

    @classmethod
    def of(
        cls,
        parts: ModelParts,
        spec: DataSpec,
        gathered: Gathered = "float32",
        loss: RowFunction = cross_entropy,
    ) -> ProgramGradient:
        """That of a model on data like these, whose numbers of vertices and edges are known.

        Args:
            parts: the model.
            spec: the data.
            gathered: how an epoch stores the rows that it sums over neighbours.
            loss: `(output, labels) -> [V]`.

        Raises:
            SplitError: the model cannot be split.
        """
        if spec.num_vertices is None or spec.num_edges is None:
            raise ValueError(
                "a function is compiled for given sizes: num_vertices and num_edges of the DataSpec are None"
            )
        program = optimise(trace(parts, spec, loss=loss, metrics=None, fused=True))
        function = program.as_function(spec.num_vertices, spec.num_edges, gathered=gathered)
        return cls(function, program.passes, forward_of(parts, spec, function.keys))

    def prepare(self, arrays: TrainingArrays) -> tuple[Any, tuple[Any, ...], float]:
        """See `Gradient`."""
        function, seconds = self._keep.prepare(arrays.run_data)
        return function, jax.eval_shape(self._function.prepare, arrays.run_data), seconds

    def keep(self, arrays: TrainingArrays) -> Kept:
        """Runs what the passes hoisted out of the epoch."""
        function, compile_seconds = self._keep.prepare(arrays.run_data)
        begin = time.perf_counter()
        kept = jax.block_until_ready(function(arrays.run_data))
        return Kept(kept, compile_seconds, time.perf_counter() - begin)

    def __call__(self, params: Tree, state: Tree, inputs: EpochInputs) -> tuple[Any, Tree, Tree]:
        """See `Gradient`."""
        data = inputs.arrays.run_data
        result = self._function.step(
            inputs.kept, data, params, inputs.streams, state, seed=inputs.seed, epoch=inputs.epoch
        )
        return result.loss, result.gradients, result.state

    def loss(self, params: Tree, state: Tree, inputs: EpochInputs) -> Any:
        """See `Gradient`. Its derivative is the program's own: what is folded into a step cannot be differentiated."""

        @jax.custom_vjp
        def value(params: Tree) -> Any:
            return self(params, state, inputs)[0]

        def forward(params: Tree) -> tuple[Any, Tree]:
            loss, gradients, _ = self(params, state, inputs)
            return loss, gradients

        def backward(gradients: Tree, cotangent: Any) -> tuple[Tree]:
            return (jax.tree.map(lambda leaf: (cotangent * leaf).astype(leaf.dtype), gradients),)

        value.defvjp(forward, backward)
        return value(params)
