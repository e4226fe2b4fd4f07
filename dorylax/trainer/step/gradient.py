"""The gradient of an epoch, and the exact forward pass of evaluations: of the optimised program, or of the plain model.

Both gradients agree up to rounding. The plain gradient is the reference, and serves models that cannot be split. The program
computes unchanging values once, and gathers rows where they are narrowest.

A model that trains with its optimised program is also evaluated with one, without dropout and without updates. It reuses
values that training computes once and keeps (Â·X) if it needs exactly the same, and keeps no others.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, final

import jax

from dorylax.program.gathers import Gathered
from dorylax.program.jaxpr.errors import SplitError
from dorylax.program.model.base import ModelParts, ModelStructure, Tree, epoch_rng
from dorylax.program.model.loss import RowFunction, cross_entropy, masked_loss
from dorylax.program.passes import PASSES, optimise
from dorylax.program.program import trace
from dorylax.program.single import ProgramFunction
from dorylax.program.tracing.spec import DataSpec
from dorylax.trainer.step.compiled import Compiled, EpochInputs, TrainingArrays


class Forward(ABC):
    """Computation of an evaluation's outputs; compared and hashed by identity.

    Attributes:
        by_rows: Whether it provably treats each row by itself, so that rows may be reordered.
    """

    by_rows = False

    def kept_of(self, kept: tuple[Any, ...]) -> tuple[Any, ...]:  # noqa: ARG002
        """Return the arrays that it needs, from those that training keeps."""
        return ()

    @abstractmethod
    def __call__(self, params: Tree, state: Tree, streams: Tree, kept: tuple[Any, ...], arrays: TrainingArrays) -> Any:
        """Return the model's output: a pure function, to be jitted."""


@final
class PlainForward(Forward):
    """Forward pass of the plain model."""

    def __init__(self, structure: ModelStructure) -> None:
        self._structure = structure

    def __call__(self, params: Tree, state: Tree, streams: Tree, kept: tuple[Any, ...], arrays: TrainingArrays) -> Any:  # noqa: ARG002
        """See `Forward`."""
        return self._structure.apply_evaluate(params, streams, state, arrays.graph, arrays.features, **arrays.named)


@final
class ProgramForward(Forward):
    """Forward pass by the model's program.

    Args:
        function: Function of the program without a loss.
        places: Positions of its kept arrays among those that training keeps; None: it computes them in every call, because
            training does not keep them all.
    """

    by_rows = True

    def __init__(self, function: ProgramFunction, places: tuple[int, ...] | None) -> None:
        self._function = function
        self._places = places

    @classmethod
    def of(cls, parts: ModelParts, spec: DataSpec, keys: tuple[str, ...]) -> ProgramForward:
        """Build the forward pass of a model on data of known numbers of vertices and edges.

        Args:
            parts: The model.
            spec: Specification of the data.
            keys: Keys of the arrays that training keeps (`ProgramFunction.keys`).

        Raises:
            SplitError: The model cannot be split.
        """
        traced = trace(parts, spec, loss=None, metrics=None, fused=True)

        def function(*without: str) -> ProgramFunction:
            program = optimise(traced, [name for name in PASSES if name not in without])
            return program.as_function(spec.num_vertices or 0, spec.num_edges or 0)

        hoisted = function()
        if all(key in keys for key in hoisted.keys):
            return cls(hoisted, tuple(keys.index(key) for key in hoisted.keys))
        plain = function("hoist")  # keeps only arrays that move values per edge into slots
        return cls(plain, None if plain.keys else ())

    def kept_of(self, kept: tuple[Any, ...]) -> tuple[Any, ...]:
        """See `Forward`."""
        return (*(kept[place] for place in self._places or ()), *self._function.constants)

    def __call__(self, params: Tree, state: Tree, streams: Tree, kept: tuple[Any, ...], arrays: TrainingArrays) -> Any:
        """See `Forward`."""
        data = arrays.run_data
        if self._places is None:
            kept = (*self._function.prepare(data)[: len(self._function.keys)], *kept)
        return self._function.output(kept, data, params, streams, state)


def forward_of(parts: ModelParts, spec: DataSpec, keys: tuple[str, ...]) -> Forward:
    """Return `ProgramForward.of`, or the plain model's forward pass if only training can be split."""
    try:
        return ProgramForward.of(parts, spec, keys)
    except SplitError:
        return PlainForward(parts.structure)


class Kept(NamedTuple):
    """Values that are the same in every epoch.

    Attributes:
        arrays: The values, an argument of the gradient.
        compile_seconds: Seconds spent on compiling their computation.
        seconds: Seconds spent on computing them.
    """

    arrays: tuple[Any, ...] = ()
    compile_seconds: float = 0.0
    seconds: float = 0.0


class Gradient(ABC):
    """Computation of loss and gradients; compared and hashed by identity.

    Attributes:
        passes: Passes of the program; None without a program.
        reads_features: Whether an epoch reads the features, instead of only values computed once from them.
        forward: Forward pass for evaluating a model trained with this gradient.
    """

    passes: tuple[str, ...] | None = None
    reads_features = True
    forward: Forward

    def prepare(self, arrays: TrainingArrays) -> tuple[Any, tuple[Any, ...], float]:  # noqa: ARG002
        """Compile the computation of `keep`, which keeps no values by default.

        Args:
            arrays: The data set, or its shapes.

        Returns:
            The executable, or None if no values are kept; abstract results of `keep`; seconds spent now.
        """
        return None, (), 0.0

    def keep(self, arrays: TrainingArrays) -> Kept:  # noqa: ARG002
        """Compute the values that are the same in every epoch, on the device."""
        return Kept()

    @abstractmethod
    def __call__(self, params: Tree, state: Tree, inputs: EpochInputs) -> tuple[Any, Tree, Tree]:
        """Return the loss before the update, gradients and new state: a pure function, to be jitted."""

    @abstractmethod
    def loss(self, params: Tree, state: Tree, inputs: EpochInputs) -> Any:
        """Return only the loss, which may be differentiated once, for optimizers with a line search."""


@final
class PlainGradient(Gradient):
    """`jax.value_and_grad` of the whole model.

    Args:
        structure: Structure of the model.
        loss: `(output, labels) -> [V]`.
    """

    def __init__(self, structure: ModelStructure, loss: RowFunction = cross_entropy) -> None:
        self._structure = structure
        self._loss = loss
        self.forward = PlainForward(structure)

    def __call__(self, params: Tree, state: Tree, inputs: EpochInputs) -> tuple[Any, Tree, Tree]:
        """See `Gradient`."""
        loss_of = self._loss_of(state, inputs)
        (loss, new_state), gradients = jax.value_and_grad(loss_of, has_aux=True)(params)
        return loss, gradients, new_state

    def loss(self, params: Tree, state: Tree, inputs: EpochInputs) -> Any:
        """See `Gradient`."""
        return self._loss_of(state, inputs)(params)[0]

    def _loss_of(self, state: Tree, inputs: EpochInputs) -> Callable[[Tree], tuple[Any, Tree]]:
        """Return the loss of an epoch, with the model's new state, as a function of the parameters."""
        streams, arrays = epoch_rng(inputs.streams, inputs.seed, inputs.epoch), inputs.arrays

        def loss_of(params: Tree) -> tuple[Any, Tree]:
            rows = (arrays.graph, arrays.features)
            output, new_state = self._structure.apply_train(params, streams, state, *rows, **arrays.named)
            return masked_loss(output, arrays.labels, arrays.masks[0], self._loss), new_state

        return loss_of


@final
class ProgramGradient(Gradient):
    """The step of an optimised program.

    Args:
        function: Function of the program.
        passes: Passes of the program.
        forward: Forward pass for evaluations.
    """

    def __init__(self, function: ProgramFunction, passes: tuple[str, ...], forward: Forward) -> None:
        self.passes = passes
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
        """Build the gradient of a model on data of known numbers of vertices and edges.

        Args:
            parts: The model.
            spec: Specification of the data.
            gathered: Type in which an epoch stores rows for sums over neighbours.
            loss: `(output, labels) -> [V]`.

        Raises:
            SplitError: The model cannot be split.
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
        """Run the work that passes hoisted out of the epoch."""
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
        """See `Gradient`. The program supplies the derivative, since a folded step cannot be differentiated."""

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
