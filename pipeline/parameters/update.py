"""The step from one version to the next. Equal gradients give the single-machine trainer's step, bit for bit."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from typing import Any, NoReturn, final

import cloudpickle
import jax
import jax.numpy as jnp
import optax

from dorylax.pipeline.parameters.records import Advance, ServerState, Step, Tree
from dorylax.pipeline.parameters.step_counts import with_epoch
from dorylax.program.model import optimizer_step


@final
class OptimizerStep:
    """A pickled and compiled optimizer.

    As on a single machine, an optimizer may read the loss (`value`) and the gradient (`grad`). It may not evaluate the loss
    at other parameters (`value_fn`), because that takes another epoch.

    With a factor K the step is that of `chain(scale(K), optimizer, scale(1/K))`, with the state of `optimizer` itself.
    `value` and `grad` are then K times those of the interval. Such a step with 1/K of a gradient moves 1/K as far as
    `optimizer` with the whole gradient: exactly for SGD, in length for Adam.

    Args:
        optimizer: An optax transformation, or its bytes from cloudpickle.
        params: The parameters, or their shapes.
        advance: Computes the model's new state; None if the model has no state.
        by_epoch: Whether schedules follow the epoch instead of the number of updates; see `step_counts`.

    Attributes:
        pickled: The optimizer as bytes, for a server in another process.

    Raises:
        ValueError: The optimizer does not pickle, or needs `value_fn`.
    """

    def __init__(
        self,
        optimizer: optax.GradientTransformation | bytes,
        params: Tree,
        advance: Advance | None = None,
        *,
        by_epoch: bool = False,
    ) -> None:
        self.pickled = optimizer if isinstance(optimizer, bytes) else _pickled(optimizer)
        # Load the pickled optimizer even on one machine, so that pickling faults show early.
        self._optimizer, self._step = _loaded(self.pickled)
        # Losses are sums of many intervals' parts: float32 at least, float64 where the parameters are.
        floats = [leaf.dtype for leaf in jax.tree.leaves(params) if jnp.issubdtype(leaf.dtype, jnp.floating)]
        self._advance, self._by_epoch = advance, by_epoch
        self._loss_type = jnp.result_type(jnp.float32, *floats)
        self._try(params)

    def start(self, params: Tree, state: Tree, opt_state: Tree | None = None, version: int = 0) -> ServerState:
        """Return the first version of a server, with copies of all arrays.

        Args:
            params: The parameters.
            state: The model's other variables.
            opt_state: The state of the optimizer; None initialises it.
            version: The number of updates that the arrays contain.
        """
        params = optimizer_step.fresh(params)
        opt_state = optimizer_step.fresh(self._optimizer.init(params) if opt_state is None else opt_state)
        return ServerState(version, params, opt_state, optimizer_step.fresh(state))

    def __call__(self, last: ServerState, update: Step) -> ServerState:
        """Compute the version after an update. The last version stays valid.

        Raises:
            ValueError: The update is not the next one.
        """
        if update.number != last.version + 1:
            raise ValueError(f"update {update.number} does not follow version {last.version}")
        state = last.state
        if self._advance is not None:  # of the newest state, not of a stashed one: no version's change may be lost
            state = self._advance(last.params, state, update.epoch, update.statistics)
        epoch = update.epoch if self._by_epoch else None
        params, opt_state = self.step(
            last.params, last.opt_state, update.gradients, update.loss, epoch=epoch, factor=update.factor
        )
        return ServerState(update.number, *jax.block_until_ready((params, opt_state, state)))

    def step(
        self,
        params: Tree,
        opt_state: Tree,
        gradients: Tree,
        loss: Any,
        *,
        epoch: int | None = None,
        factor: int = 1,
    ) -> tuple[Tree, Tree]:
        """Return the parameters and the optimizer's state after a step. The class explains `factor`."""
        loss = jnp.asarray(loss, self._loss_type)
        return self._step(params, opt_state, gradients, loss, epoch=epoch, factor=factor)

    def _try(self, params: Tree) -> None:
        """Trace a step, so that an unsupported optimizer fails before training starts."""
        params = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), params)
        loss = jax.ShapeDtypeStruct((), self._loss_type)
        opt_state = jax.eval_shape(self._optimizer.init, params)
        jax.eval_shape(self._step, params, opt_state, params, loss)


@functools.lru_cache(maxsize=16)
def _loaded(pickled: bytes) -> tuple[optax.GradientTransformationExtraArgs, Callable[..., tuple[Tree, Tree]]]:
    """Return the optimizer and its jitted step, cached so that servers and seeds with equal bytes compile once."""
    optimizer = optax.with_extra_args_support(cloudpickle.loads(pickled))

    def step(
        params: Tree,
        opt_state: Tree,
        gradients: Tree,
        loss: Any,
        *,
        epoch: Any = None,
        factor: int = 1,
    ) -> tuple[Tree, Tree]:
        if epoch is not None:
            opt_state = with_epoch(opt_state, epoch)
        return optimizer_step.step(optimizer, params, opt_state, gradients, loss, value_fn=_refuse, factor=factor)

    return optimizer, jax.jit(step, static_argnames="factor")


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise ValueError(
        "the optimizer evaluates the loss at other parameters (it calls value_fn, as line searches do), which parameter "
        "servers cannot: choose another optimizer, or train on a single machine"
    )


def _pickled(optimizer: optax.GradientTransformation) -> bytes:
    try:
        made: bytes = cloudpickle.dumps(optimizer)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise ValueError(
            f"the optimizer cannot be sent to parameter servers, because cloudpickle cannot pickle it ({error}): "
            "let its functions refer to no files, locks or handles"
        ) from error
    return made
