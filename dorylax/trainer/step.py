"""The jitted work of an epoch: one training step, one evaluation, one prediction.

Everything large is an argument: a graph or features that a jitted function closed over would become constants, which
XLA folds for minutes. The epoch and the seed are arguments too, so that nothing is compiled again for them. Functions
and their compiled forms are kept per (model structure, optimizer): many seeds of one configuration compile once.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import optax

from dorylax.graph.graph import Graph
from dorylax.trainer.epoch_rng import epoch_rng
from dorylax.trainer.loss import confusion_counts, masked_loss
from dorylax.trainer.model_parts import Structure, Tree


class TrainingArrays(NamedTuple):
    """A data set as the jitted functions take it: features `[V, F]`, labels `[V]` or `[V, C]`, masks bool `[3, V]`."""

    graph: Graph
    features: Any
    labels: Any
    masks: Any  # rows: training, validation, test


@final
class Compiled:
    """A jitted function, compiled ahead of time once per argument shapes so that its compile time is known."""

    def __init__(self, function: Callable[..., Any], donate: tuple[int, ...] = ()) -> None:
        self._jitted = jax.jit(function, donate_argnums=donate)
        self._executables: dict[Any, Callable[..., Any]] = {}

    def prepare(self, *args: Any) -> tuple[Callable[..., Any], float]:
        """The executable for arguments like these, and the seconds spent compiling it now (0 if it was there)."""
        key = signature(args)
        if key in self._executables:
            return self._executables[key], 0.0
        begin = time.perf_counter()
        self._executables[key] = self._jitted.lower(*args).compile()
        return self._executables[key], time.perf_counter() - begin


@final
class StepFunctions:
    """What the trainer runs for one model structure and optimizer.

    Attributes:
        start: `(params, state) -> (params, opt_state, state)`, fresh buffers that may be donated.
        step: `((params, opt_state, state), streams, arrays, seed, epoch) -> ((params, opt_state, state), loss)`;
            donates its first argument. The loss is that before the update.
        evaluate: `(params, state, streams, arrays) -> (counts int32 [3, 3], nan)`: `confusion_counts` on the three
            masks, and whether any output is NaN.
        predict: `(params, state, streams, graph, features) -> float32 [V, C]`.
    """

    def __init__(self, structure: Structure, optimizer: optax.GradientTransformation) -> None:
        self._structure = structure
        self._optimizer = optax.with_extra_args_support(optimizer)
        self._outputs: dict[Any, tuple[Any, Any]] = {}
        self.start = Compiled(self._start)
        self.step = Compiled(self._step, donate=(0,))
        self.evaluate = Compiled(self._evaluate)
        self.predict = Compiled(self._predict)

    def output_shapes(self, params: Tree, streams: Tree, state: Tree, graph: Any, features: Any) -> tuple[Any, Any]:
        """Abstract `(output, new state)` of a training forward: traced once per argument shapes, never computed."""
        args = (params, streams, state, graph, features)
        key = signature(args)
        if key not in self._outputs:
            self._outputs[key] = jax.eval_shape(self._structure.apply_train, *args)
        return self._outputs[key]

    def _start(self, params: Tree, state: Tree) -> tuple[Tree, Tree, Tree]:
        return _fresh(params), _fresh(self._optimizer.init(params)), _fresh(state)

    def _step(
        self, carry: tuple[Tree, Tree, Tree], streams: Tree, arrays: TrainingArrays, seed: Any, epoch: Any
    ) -> tuple[tuple[Tree, Tree, Tree], Any]:
        params, opt_state, state = carry
        own_streams = epoch_rng(streams, seed, epoch)

        def loss_of(candidate: Tree) -> tuple[Any, Tree]:
            logits, new_state = self._structure.apply_train(
                candidate, own_streams, state, arrays.graph, arrays.features
            )
            return masked_loss(logits, arrays.labels, arrays.masks[0]), new_state

        (loss, new_state), gradients = jax.value_and_grad(loss_of, has_aux=True)(params)
        # The extra arguments serve optimizers that look at the loss (line searches, reduce_on_plateau).
        updates, new_opt_state = self._optimizer.update(
            gradients, opt_state, params, value=loss, grad=gradients, value_fn=lambda p: loss_of(p)[0]
        )
        new_params = optax.apply_updates(params, updates)
        return _like((new_params, new_opt_state, new_state), carry), loss

    def _evaluate(self, params: Tree, state: Tree, streams: Tree, arrays: TrainingArrays) -> tuple[Any, Any]:
        logits = self._structure.apply_evaluate(params, streams, state, arrays.graph, arrays.features)
        return confusion_counts(logits, arrays.labels, arrays.masks), jnp.isnan(logits).any()

    def _predict(self, params: Tree, state: Tree, streams: Tree, graph: Graph, features: Any) -> Any:
        return self._structure.apply_evaluate(params, streams, state, graph, features).astype(jnp.float32)


def step_functions(structure: Structure, optimizer: optax.GradientTransformation) -> StepFunctions:
    """The functions for a structure and an optimizer: one object for equal structures and the same optimizer.

    An optimizer is the same only if it is the same object (its functions are compared by identity).
    """
    try:
        return _cached(structure, optimizer)
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        return StepFunctions(structure, optimizer)


@functools.lru_cache(maxsize=16)
def _cached(structure: Structure, optimizer: optax.GradientTransformation) -> StepFunctions:
    return StepFunctions(structure, optimizer)


def signature(args: Any) -> Any:
    """A hashable description of a tree of arrays: structure, shapes and dtypes."""
    leaves, treedef = jax.tree.flatten(args)
    return treedef, tuple(jax.typeof(leaf) for leaf in leaves)


def _fresh(tree: Tree) -> Tree:
    """Copies with a definite dtype: outputs then share no buffer with inputs, and later steps see the same types."""
    return jax.tree.map(lambda leaf: jnp.array(leaf, dtype=jnp.asarray(leaf).dtype, copy=True), tree)


def _like(tree: Tree, template: Tree) -> Tree:
    """Dtypes of the template (and no weak types), so that one executable serves every epoch."""
    return jax.tree.map(lambda leaf, old: jnp.asarray(leaf, dtype=old.dtype), tree, template)
