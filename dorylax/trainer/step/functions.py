"""The jitted functions of an epoch: one training step, one evaluation, one prediction.

Everything large is an argument: a graph or features in a closure would become constants, which XLA takes minutes to fold.
The epoch and the seed are arguments too, so that they cause no recompilation. Functions and their compiled forms are cached
per (model structure, optimizer, objective), and within that per (data shapes, gradient). Many seeds of one configuration are
traced, split and compiled once.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Hashable
from typing import Any, NoReturn, cast, final

import jax
import jax.numpy as jnp
import optax

from dorylax.errors import InputError
from dorylax.metrics.evaluation import evaluate
from dorylax.program.gathers import Gathered
from dorylax.program.model import optimizer_step
from dorylax.program.model.base import ModelParts, ModelStructure, Tree, signature
from dorylax.program.tracing.spec import DataSpec
from dorylax.trainer.step.compiled import Compiled, EpochInputs, TrainingArrays
from dorylax.trainer.step.gradient import Forward, Gradient, PlainGradient, ProgramGradient, forward_of
from dorylax.trainer.step.objective import CLASSES, Objective


@final
class StepFunctions:
    """The trainer's functions for one model structure, optimizer and objective.

    Args:
        structure: Structure of the model.
        optimizer: The optimizer.
        objective: Loss and metric.

    Attributes:
        objective: Loss and metric.
        plain: Gradient from JAX's differentiation of the model.
        start: `(params, state) -> (params, opt_state, state)`, in fresh buffers that may be donated.
        update: `((params, opt_state, state), loss, gradients, new state) -> (params, opt_state, state)`, for gradients
            computed elsewhere. Its compilation raises a `InputError` if the optimizer re-evaluates the loss.
    """

    def __init__(
        self, structure: ModelStructure, optimizer: optax.GradientTransformation, objective: Objective = CLASSES
    ) -> None:
        self._structure = structure
        self.objective = objective
        self._optimizer = optax.with_extra_args_support(optimizer)
        self._outputs: dict[Any, tuple[Any, Any]] = {}
        self._optimised: dict[Any, ProgramGradient] = {}
        self._steps: dict[Gradient, Compiled] = {}
        self.plain = PlainGradient(structure, objective.rows)
        self.start = Compiled(self._start)
        self.update = Compiled(self._update)
        self._forwards: dict[Any, Forward] = {}
        self._evaluations: dict[Forward, Compiled] = {}
        self._predictions: dict[Forward, Compiled] = {}

    def output_shapes(self, *args: Any) -> tuple[Any, Any]:
        """Return abstract `(output, new state)` of a training forward pass, traced once per argument shapes.

        Args:
            args: params, streams, state, graph, features, and a dict of further inputs.
        """

        def call(*args: Any) -> tuple[Any, Tree]:
            return self._structure.apply_train(*args[:-1], **args[-1])

        key = signature(args)
        if key not in self._outputs:
            self._outputs[key] = jax.eval_shape(call, *args)
        return self._outputs[key]

    def optimised(
        self, parts: ModelParts, spec: DataSpec, *, gathered: Gathered = "float32"
    ) -> tuple[ProgramGradient, float]:
        """Return the optimised program's gradient, and the seconds spent on tracing it now (0 if it was cached).

        Args:
            parts: The model, of this structure.
            spec: Specification of the data.
            gathered: Type in which an epoch stores rows for sums over neighbours.

        Raises:
            SplitError: The model cannot be split.
        """
        key = (spec, gathered, signature((parts.params, parts.streams, parts.state)))
        if key in self._optimised:
            return self._optimised[key], 0.0
        begin = time.perf_counter()
        self._optimised[key] = ProgramGradient.of(parts, spec, gathered, self.objective.rows)
        return self._optimised[key], time.perf_counter() - begin

    def forward(self, parts: ModelParts, spec: DataSpec) -> Forward:
        """Return the forward pass of a model trained elsewhere: its program, or the plain model if it cannot be split."""
        key = (spec, signature((parts.params, parts.streams, parts.state)))
        if key not in self._forwards:
            self._forwards[key] = forward_of(parts, spec, ())
        return self._forwards[key]

    def step(self, gradient: Gradient) -> Compiled:
        """Return `((params, opt_state, state), inputs) -> ((params, opt_state, state), loss)` with this gradient.

        It donates its first argument. The inputs are `EpochInputs`; the loss is the one before the update.
        """
        if gradient not in self._steps:
            self._steps[gradient] = Compiled(functools.partial(self._step, gradient), donate=(0,))
        return self._steps[gradient]

    def evaluation(self, forward: Forward) -> Compiled:
        """Return `(params, state, inputs) -> (sums [3, …], nan)` with this forward pass.

        `inputs` are `(streams, kept, arrays)` with `kept` from `forward.kept_of`. The results are `Objective.sums` on the
        three masks, and whether any output is NaN.
        """
        if forward not in self._evaluations:
            self._evaluations[forward] = Compiled(functools.partial(_evaluate, forward, self.objective))
        return self._evaluations[forward]

    def prediction(self, forward: Forward) -> Compiled:
        """Return `(params, state, inputs) -> output`, floating arrays as float32, with inputs as for `evaluation`."""
        if forward not in self._predictions:
            self._predictions[forward] = Compiled(functools.partial(_predict, forward))
        return self._predictions[forward]

    def _start(self, params: Tree, state: Tree) -> tuple[Tree, Tree, Tree]:
        return (
            optimizer_step.fresh(params),
            optimizer_step.fresh(self._optimizer.init(params)),
            optimizer_step.fresh(state),
        )

    def _step(
        self, gradient: Gradient, carry: tuple[Tree, Tree, Tree], inputs: EpochInputs
    ) -> tuple[tuple[Tree, Tree, Tree], Any]:
        params, _, state = carry
        loss, gradients, new_state = gradient(params, state, inputs)

        def value_fn(candidate: Tree) -> Any:
            return gradient.loss(candidate, state, inputs)

        return self._updated(carry, loss, gradients, new_state, value_fn), loss

    def _update(self, carry: tuple[Tree, Tree, Tree], loss: Any, gradients: Tree, new_state: Tree) -> Any:
        return self._updated(carry, loss, gradients, new_state, _refuse)

    def _updated(
        self, carry: tuple[Tree, Tree, Tree], loss: Any, gradients: Tree, new_state: Tree, value_fn: Any
    ) -> tuple[Tree, Tree, Tree]:
        params, opt_state, state = carry
        new = optimizer_step.step(self._optimizer, params, opt_state, gradients, loss, value_fn=value_fn)
        return *new, optimizer_step.like(new_state, state)


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise InputError(
        "the optimizer evaluates the loss at other parameters (it calls value_fn, as line searches do), which takes all "
        "rows in memory: choose another optimizer, or give the run more memory (single.memory_limit)"
    )


def _predict(forward: Forward, params: Tree, state: Tree, inputs: tuple[Tree, tuple[Any, ...], TrainingArrays]) -> Any:
    return jax.tree.map(
        lambda leaf: leaf.astype(jnp.float32) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf,
        forward(params, state, *inputs),
    )


def _evaluate(
    forward: Forward,
    objective: Objective,
    params: Tree,
    state: Tree,
    inputs: tuple[Tree, tuple[Any, ...], TrainingArrays],
) -> tuple[Any, Any]:
    output, arrays = forward(params, state, *inputs), inputs[2]
    return evaluate(objective.sums, output, arrays.labels, arrays.masks)


def step_functions(
    structure: ModelStructure, optimizer: optax.GradientTransformation, objective: Objective = CLASSES
) -> StepFunctions:
    """Return the functions for a structure, an optimizer and an objective: one object for equal arguments.

    Optimizers are equal only if they are the same object, since their functions are compared by identity; so are losses.
    """
    try:
        return _cached(cast(Hashable, structure), optimizer, objective)
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        return StepFunctions(structure, optimizer, objective)


@functools.lru_cache(maxsize=16)
def _cached(structure: Any, optimizer: optax.GradientTransformation, objective: Objective) -> StepFunctions:
    return StepFunctions(structure, optimizer, objective)
